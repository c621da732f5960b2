/**
 * explain — turns what the broker refused into what it means: which thing, what exists and what
 * was wanted, which permission, what to do. Nothing here or anywhere else ever deletes to make
 * room.
 */

import { isRespoolError, RespoolError, textOf, unreachable } from '../../core/errors.ts';
import { refusalCode } from '../connection/amqp.ts';

/** What was tried when the broker refused. */
export interface TriedDeclaration {
  readonly act: 'declare' | 'check' | 'bind' | 'unbind' | 'consume' | 'publish' | 'delete';
  readonly what: 'queue' | 'exchange';
  readonly name: string;
  /** Of a binding: the exchange that the queue is bound to. */
  readonly exchange?: string;
  /** What else can be done where it may not be declared; default: to let others declare it. */
  readonly instead?: string;
}

/** One argument that differs; undefined: not there. */
export interface Difference {
  readonly argument: string;
  readonly have: string | undefined;
  readonly want: string | undefined;
}

/** The error for the caller that asked, with the broker's own as its cause. */
export function explainRefusal(error: unknown, tried: TriedDeclaration): RespoolError {
  if (isRespoolError(error)) return error;
  const { code, why } = account(error, tried);
  return new RespoolError(code, `cannot ${doing(tried)}: ${why}`, { cause: error });
}

/** The argument that a 406 names, if that is what it is. */
export function differenceOf(error: unknown): Difference | undefined {
  const found = INEQUIVALENT.exec(textOf(error));
  if (found === null) return undefined;
  const [, argument = '', want = '', have = ''] = found;
  return { argument, have: valueIn(have), want: valueIn(want) };
}

/** A name in quotes, never cut short: names differ at their ends. */
export function inFull(name: string): string {
  return JSON.stringify(name);
}

/** A difference in words. */
export function describeDifference({ argument, have, want }: Difference): string {
  return `"${argument}" is ${have ?? 'not set'} there, ${want ?? 'not set'} wanted`;
}

// n.b. Without a fixed end: other releases add words and quotes there.
const INEQUIVALENT = /inequivalent arg '([^']*)' for .*?: received (.*?) but current is ([^"]*)/s;
const INVALID = /PRECONDITION_FAILED - (invalid (?:arg|property) .*?)"?$/s;
const REFUSED = /access to (queue|exchange|topic) '(.*?)' in .*?refused for user '(.*?)'/s;
const SAID = /with message "(.*)"$/s;

interface Account {
  readonly code: RespoolError['code'];
  readonly why: string;
}

function account(error: unknown, tried: TriedDeclaration): Account {
  switch (refusalCode(error)) {
    case 403:
      return refused(error, tried);
    case 404:
      return missing(error, tried);
    case 405:
      return {
        code: 'topology.mismatch',
        why:
          'it is an exclusive queue of another connection; wait until that one is closed, or ' +
          'use another name',
      };
    case 406:
      return different(error, tried);
    case 530:
    case 540:
      return {
        code: 'config.invalid',
        why: `the broker does not allow that: ${said(error)}; see its limits and its version`,
      };
    default:
      return withoutCode(error);
  }
}

function different(error: unknown, { what }: TriedDeclaration): Account {
  const difference = differenceOf(error);
  if (difference === undefined) {
    const invalid = INVALID.exec(textOf(error))?.[1];
    return {
      code: 'config.invalid',
      why: `the broker refuses it: ${invalid ?? said(error)}; correct the setting`,
    };
  }
  return {
    code: 'topology.mismatch',
    why:
      `it already exists with different arguments: ${describeDifference(difference)}. ` +
      `Arguments cannot be changed later, so the ${what} was left as it is. Use its existing ` +
      'arguments, another name or style, or move to new queues: ' +
      'respool rabbit topology migrate',
  };
}

function missing(error: unknown, tried: TriedDeclaration): Account {
  const found = /no (queue|exchange) '(.*?)' in vhost '(.*?)'/s.exec(textOf(error));
  const [, what = tried.what, name = tried.name, vhost = '/'] = found ?? [];
  const todo =
    what === 'exchange' && tried.act === 'bind'
      ? 'create it, or give the binding a "type" ("exchangeType" of listen) so that it is declared'
      : 'create it: respool rabbit topology apply';
  return {
    code: 'topology.mismatch',
    why: `there is no ${what} ${inFull(name)} in the virtual host ${inFull(vhost)}; ${todo}`,
  };
}

function refused(error: unknown, tried: TriedDeclaration): Account {
  const found = REFUSED.exec(textOf(error));
  if (found === null) {
    return { code: 'config.invalid', why: `${said(error)}; use another name or exchange` };
  }
  const [, what = '', name = '', user = ''] = found;
  const permission = permissionFor(tried, what, name);
  const vhost = /in vhost '(.*?)'/s.exec(textOf(error))?.[1] ?? '/';
  const { instead = "let an administrator declare it and use declare: 'verify' here" } = tried;
  const rest = tried.act === 'declare' && instead !== '' ? `, or ${instead}` : '';
  return {
    code: 'config.invalid',
    why:
      `the user ${inFull(user)} needs the permission "${permission}" on the ${what} ` +
      `${inFull(name)}; add the name to that pattern: rabbitmqctl set_permissions -p ` +
      `${quoteName(vhost)} ${quoteName(user)} CONFIGURE WRITE READ (it replaces all three; ` +
      `rabbitmqctl list_permissions shows them)${rest}`,
  };
}

/** https://www.rabbitmq.com/docs/access-control: the table of operations and permissions. */
function permissionFor(tried: TriedDeclaration, what: string, name: string): string {
  switch (tried.act) {
    case 'consume':
      return 'read';
    case 'publish':
      return what === 'topic' ? 'write (of the topic)' : 'write';
    case 'bind':
    case 'unbind':
      return what === 'queue' ? 'write' : 'read';
    case 'check':
    case 'declare':
    case 'delete':
      // Anyone who names a dead-letter or alternate exchange must be allowed to write to it.
      return what === tried.what && name === tried.name ? 'configure' : 'write';
    default:
      return unreachable(tried.act);
  }
}

function withoutCode(error: unknown): Account {
  const text = textOf(error);
  if (error instanceof TypeError || /is the wrong type/.test(text)) {
    return { code: 'config.invalid', why: `${text}; names have at most 255 bytes` };
  }
  return {
    code: 'broker.unavailable',
    why: `${said(error)}; see that the broker is well, then try again`,
  };
}

function doing({ act, what, name, exchange }: TriedDeclaration): string {
  switch (act) {
    case 'bind':
      return `bind the queue ${inFull(name)} to the exchange ${inFull(exchange ?? '')}`;
    case 'unbind':
      return `unbind the queue ${inFull(name)} from the exchange ${inFull(exchange ?? '')}`;
    case 'consume':
      return `consume from the queue ${inFull(name)}`;
    case 'publish':
      return `publish to the ${what} ${inFull(name)}`;
    case 'check':
      return `look at the ${what} ${inFull(name)}`;
    case 'declare':
    case 'delete':
      return `${act} the ${what} ${inFull(name)}`;
    default:
      return unreachable(act);
  }
}

function said(error: unknown): string {
  const text = textOf(error);
  return SAID.exec(text)?.[1] ?? text;
}

/** The broker writes `none`, `'5'`, or `the value '5' of type 'long'`. */
function valueIn(text: string): string | undefined {
  if (/^none\b/.test(text)) return undefined;
  return /'(.*?)'/s.exec(text)?.[1] ?? text.trim();
}

/** As a shell takes it as one word. */
export function quoteName(text: string): string {
  return /^[\w./@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
