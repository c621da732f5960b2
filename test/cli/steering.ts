/** steering — what the tests of hold, release, retry, bounce and remove have in common. */
import { fill, states } from './fill.ts';
import { type Ran, setup, type Shell } from './setup.ts';

/** A person at a terminal who gives these answers. */
export interface Person {
  readonly questions: string[];
  readonly options: {
    readonly tty: readonly ('stdin' | 'stdout' | 'stderr')[];
    readonly confirm: (question: string) => Promise<boolean>;
  };
}

/** A person who answers one question after the other; no when there is no answer left. */
export function person(...answers: boolean[]): Person {
  const questions: string[] = [];
  return {
    questions,
    options: {
      tty: ['stdin', 'stdout', 'stderr'],
      confirm: async (question) => {
        questions.push(question);
        return answers[questions.length - 1] ?? false;
      },
    },
  };
}

/** A spool with a message in every state, and a look at them. */
export async function steering(): Promise<
  Shell & { readonly states: () => Promise<Record<string, string>> }
> {
  const shell = await setup();
  await fill(shell);
  return { ...shell, states: () => states(shell) };
}

/** The lines of the audit record since the store was filled. */
export async function audited(shell: Shell): Promise<Record<string, unknown>[]> {
  const ran: Ran = await shell.cli(['audit', '--json']);
  return ran.objects().filter(({ by }) => by === 'tester@cli');
}
