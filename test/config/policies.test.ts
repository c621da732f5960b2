/** Policies as data: every constructor by its name. */
import {
  custom,
  exponential,
  fixed,
  ladder,
  linear,
  noRetry,
  postfix,
  type RetryPolicy,
} from 'respool';
import { describe, expect, test } from 'vitest';
import { load, refusal } from './setup.ts';

describe('a policy as data is the policy that the function makes', () => {
  const cases: [unknown, RetryPolicy][] = [
    [
      { exponential: { first: '5s', max: '6h', attempts: 20 } },
      exponential({ first: '5s', max: '6h', attempts: 20 }),
    ],
    [
      { exponential: { first: '5s', factor: 3, jitter: 0.2, maxAge: '2d' } },
      exponential({ first: '5s', factor: 3, jitter: 0.2, maxAge: '2d' }),
    ],
    [{ exponential: { first: '5s' }, attempts: 3 }, exponential({ first: '5s', attempts: 3 })],
    [
      { linear: { first: '1s', step: '2s', max: '10s' } },
      linear({ first: '1s', step: '2s', max: '10s' }),
    ],
    [{ ladder: ['2s', '5s'] }, ladder(['2s', '5s'])],
    [{ ladder: ['2s', '5s'], jitter: 0.5 }, ladder(['2s', '5s'], { jitter: 0.5 })],
    [{ ladder: { delays: ['2s'], maxAge: '1h' } }, ladder(['2s'], { maxAge: '1h' })],
    [{ fixed: '5s' }, fixed('5s')],
    [{ fixed: 5_000, attempts: 7 }, fixed('5s', { attempts: 7 })],
    [{ fixed: { delay: '5s', attempts: 7 } }, fixed('5s', { attempts: 7 })],
    ['postfix', postfix()],
    [{ postfix: { attempts: 3 } }, postfix({ attempts: 3 })],
    [{ postfix: null }, postfix()],
    ['noRetry', noRetry()],
    [{ noRetry: {} }, noRetry()],
    [{ custom: 'mine', rungs: ['1s', '9s'] }, custom('mine', ['1s', '9s'])],
    [
      { custom: { name: 'mine', rungs: ['1s'], attempts: 2 } },
      custom('mine', ['1s'], { attempts: 2 }),
    ],
    [fixed('8s', { attempts: 3 }), fixed('8s', { attempts: 3 })],
  ];
  test.each(cases)('%j', async (written, policy) => {
    const { config } = await load({ config: { policies: { default: written } } });
    expect(config.policies).toEqual({ default: policy });
  });
});

describe('a policy that is none is refused with its whole key', () => {
  const cases: [unknown, string[]][] = [
    ['often', ['"often"', '"policies.p"', 'postfix, noRetry']],
    [5, ['5', '"policies.p"', 'exponential']],
    [{ exponentiel: {} }, ['"policies.p.exponentiel"', 'did you mean "exponential"?']],
    [{ exponential: { frist: '5s' } }, ['"policies.p.exponential.frist"', '"first"']],
    [{ exponential: '5s' }, ['"policies.p.exponential"', 'an object of options']],
    [{ exponential: { first: 'soon' } }, ['"soon"', '"policies.p.exponential.first"']],
    [{ exponential: {} }, ['"policies.p.exponential.first"']],
    [{ fixed: '5s', attempts: 0 }, ['0', '"policies.p.fixed.attempts"', '1 to 1000']],
    [{ fixed: '5s', ladder: ['1s'] }, ['"policies.p"']],
    [{ ladder: ['1s', 'x'] }, ['"x"', '"policies.p.ladder.delays[1]"']],
    [{ ladder: ['1s'], attempts: 3 }, ['"policies.p.attempts"']],
    [{ custom: 'mine' }, ['"policies.p.custom.rungs"', 'a list']],
    [{ postfix: { jitter: 2 } }, ['2', '"policies.p.postfix.jitter"', '0 to 1']],
    [{ maxAttempts: 3, backoff: { kind: 'odd' } }, ['"policies.p"']],
    [{}, ['"policies.p"']],
  ];
  test.each(cases)('%j', async (written, words) => {
    const said = await refusal({ config: { policies: { p: written } } });
    for (const word of [...words, 'respool.config.json']) expect(said).toContain(word);
  });
});
