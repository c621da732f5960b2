/**
 * time-rules — what a test may say about real time, each rule a pure function from files to
 * violations.
 *
 * How long something takes depends on the machine and on what else it does, so a test may not
 * prove anything by it: it waits for events, moves a SimClock, or counts (statements, rows, bytes).
 * A limit is only there against a test that hangs, and is long enough for every machine.
 * time.test.ts runs the rules on test/ and on small samples that show what they catch.
 */
import ts from 'typescript';
import type { Violation } from './rules.ts';
import { lineOf, nodes, type Source } from './source.ts';

export type TimeRule = (sources: readonly Source[]) => Violation[];

/** The least a poll may wait for what it expects, as in vitest.config.ts. */
const POLL_MIN_MS = 120_000;
/** The least a test or a hook may take, as in vitest.config.ts. */
const TEST_MIN_MS = 300_000;
/** The least a program that a test starts may run; less than its test, so that it is ended. */
const PROGRAM_MIN_MS = 240_000;

/** The least a real server may have for an answer, in milliseconds. */
const LIMIT_MIN_MS = 20_000;
/** Options that limit how long a server may take. */
const LIMITS = [
  'confirmTimeout',
  'confirmTimeoutMs',
  'connectTimeout',
  'requestTimeout',
  'statementTimeout',
  'timeoutMs',
];
const REAL_SERVERS = /\b(?:withService|privateServer|serverUrl|ownServer|service)\(/;
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

const CLOCK_READS =
  /^(?:Date\.now|performance\.now|process\.(?:hrtime|hrtime\.bigint|cpuUsage)|systemClock\.(?:now|monotonic))$/;
/** Files without any of these are not worth a closer look. */
const MENTIONS_TIME = /Date\.now|performance\.now|hrtime|cpuUsage|systemClock\.|\b\w+Ms\b/;
/** Names of figures that another process or a helper measured. */
const MEASURED = /^(?:took|cpu|elapsed|late|stood|ended|resume)Ms$/i;
const UPPER_BOUNDS = ['toBeLessThan', 'toBeLessThanOrEqual'];
const LOWER_BOUNDS = ['toBeGreaterThan', 'toBeGreaterThanOrEqual'];
const COMPARISONS: readonly ts.SyntaxKind[] = [
  ts.SyntaxKind.LessThanToken,
  ts.SyntaxKind.LessThanEqualsToken,
  ts.SyntaxKind.GreaterThanToken,
  ts.SyntaxKind.GreaterThanEqualsToken,
];
/** Methods that put their arguments into what they are called on. */
const FILLING = ['push', 'add', 'set', 'unshift', 'append'];
/** Counting what holds times is not comparing times. */
const COUNTS = ['length', 'size'];
const POLLS = ['expect.poll', 'vi.waitFor', 'vi.waitUntil'];
const HOOKS = ['beforeAll', 'beforeEach', 'afterAll', 'afterEach', 'onTestFinished'];
const STARTS = ['spawn', 'spawnSync', 'fork', 'exec', 'execSync', 'execFile', 'execFileSync'];

/**
 * An elapsed time is not compared. A lower bound in `expect` is fine: a slow machine only makes a
 * time longer.
 */
export const noElapsedTimeIsCompared: TimeRule = (sources) =>
  sources.flatMap((source) => {
    if (!MENTIONS_TIME.test(source.text)) return [];
    const { isTime, isElapsed } = timesOf(source);
    const isMeasured = (node: ts.Node | undefined): boolean =>
      isElapsed(node) || (isTime(node) && contains(node, isClockRead));
    return everyNode(source, (node) => {
      if (ts.isBinaryExpression(node) && COMPARISONS.includes(node.operatorToken.kind)) {
        const isOfTime = isMeasured(node.left) || isMeasured(node.right);
        return isOfTime ? 'compares real time: wait for an event, or count' : undefined;
      }
      const matched = matcherOf(node);
      if (matched === undefined) return undefined;
      const { name, actual, expected } = matched;
      const isBound =
        (UPPER_BOUNDS.includes(name) && isMeasured(actual)) ||
        (LOWER_BOUNDS.includes(name) && isElapsed(expected));
      return isBound ? 'bounds an elapsed time: order of events, counts or bench/' : undefined;
    });
  });

/** Nothing is awaited for less than vitest.config.ts says. */
export const noLimitIsShort: TimeRule = (sources) =>
  sources.flatMap((source) => {
    const valueOf = constantsOf(source);
    return everyNode(source, (node) => {
      if (!ts.isCallExpression(node)) return undefined;
      const callee = calleeOf(node);
      if (callee === 'AbortSignal.timeout')
        return tooShort(valueOf(node.arguments[0]), POLL_MIN_MS);
      const [last] = node.arguments.slice(-1);
      const given = valueOf(optionOf(node, 'timeout'));
      if (POLLS.includes(callee)) {
        const isOwn = callee !== 'expect.poll' && optionOf(node, 'timeout') === undefined;
        return isOwn ? `${callee} gives up after one second` : tooShort(given, POLL_MIN_MS);
      }
      if (HOOKS.includes(callee)) return tooShort(valueOf(last), TEST_MIN_MS);
      if (isTest(callee)) return tooShort(valueOf(last) ?? given, TEST_MIN_MS);
      return isStart(node, callee) ? tooShort(given, PROGRAM_MIN_MS) : undefined;
    });
  });

/**
 * A limit of the product is long where a real server has to keep it: a busy machine reaches a short
 * one before anything is wrong. test/time.ts holds the timers of a limit until a test ends them.
 */
export const noServerHasToBeQuick: TimeRule = (sources) =>
  sources.flatMap((source) => {
    if (!REAL_SERVERS.test(source.text)) return [];
    return everyNode(source, (node) => {
      if (!ts.isPropertyAssignment(node) || !LIMITS.includes(node.name.getText())) return undefined;
      const ms = durationOf(node.initializer);
      // What is refused when it is checked reaches no server.
      if (ms === undefined || ms <= 1 || ms >= LIMIT_MIN_MS) return undefined;
      return `gives a real server ${ms} ms: hold the timer, or take ${LIMIT_MIN_MS} and more`;
    });
  });

/** No test lets real time pass. */
export const noTestSleeps: TimeRule = (sources) =>
  sources.flatMap((source) =>
    everyNode(source, (node) => {
      if (ts.isImportSpecifier(node)) {
        return (node.propertyName ?? node.name).text === 'setTimeout' ? 'sleeps' : undefined;
      }
      if (!ts.isCallExpression(node)) return undefined;
      const callee = calleeOf(node).replace(/^globalThis\./, '');
      if (callee === 'setTimeout' || callee === 'scheduler.wait') return 'sleeps';
      const [, then] = node.arguments;
      const isSleep = callee === 'systemClock.after' && /^(?:resolve|done)$/.test(textOf(then));
      return isSleep ? 'sleeps with the clock of the machine' : undefined;
    }),
  );

interface Matched {
  readonly name: string;
  readonly actual: ts.Node | undefined;
  readonly expected: ts.Node | undefined;
}

/** `expect(actual).not.toBe(expected)`, also with `expect.poll`. */
function matcherOf(node: ts.Node): Matched | undefined {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) {
    return undefined;
  }
  let root: ts.Expression = node.expression.expression;
  while (ts.isPropertyAccessExpression(root)) root = root.expression;
  if (!ts.isCallExpression(root) || !/^expect(?:\.poll)?$/.test(calleeOf(root))) return undefined;
  return {
    name: node.expression.name.text,
    actual: root.arguments[0],
    expected: node.arguments[0],
  };
}

/** What the expressions of a file are. */
interface Times {
  /** Whether it is a time that was read, or comes from one. */
  readonly isTime: (node: ts.Node | undefined) => boolean;
  /** Whether it is the length of a time. */
  readonly isElapsed: (node: ts.Node | undefined) => boolean;
}

/** Follows times over the names of a file. */
function timesOf(source: Source): Times {
  const keyOf = scopesOf(source);
  const [times, lengths] = [new Set<string>(), new Set<string>()];
  const isTime = (node: ts.Node | undefined): boolean =>
    contains(node, (part) => {
      if (isName(part)) return times.has(keyOf(part)) || lengths.has(keyOf(part));
      return isClockRead(part);
    });
  const isElapsed = (node: ts.Node | undefined): boolean =>
    contains(node, (part) => {
      if (ts.isIdentifier(part) && MEASURED.test(part.text)) return true;
      if (isName(part)) return lengths.has(keyOf(part));
      if (ts.isCallExpression(part)) return calleeOf(part) === 'process.cpuUsage';
      if (!ts.isBinaryExpression(part)) return false;
      const isDifference = part.operatorToken.kind === ts.SyntaxKind.MinusToken;
      return isDifference && isTime(part.left) && isTime(part.right);
    });
  const note = (target: ts.Node | undefined, values: readonly (ts.Node | undefined)[]): boolean => {
    if (target === undefined) return false;
    const keys = namesIn(target).map(keyOf);
    return [[times, isTime] as const, [lengths, isElapsed] as const].some(([set, is]) => {
      const added = keys.filter((key) => !set.has(key));
      if (added.length === 0 || !values.some(is)) return false;
      for (const key of added) set.add(key);
      return true;
    });
  };
  const all = nodes(source.tree)
    .map(assignmentOf)
    .filter((one) => one !== undefined);
  // Until nothing new is found: a name may come from another name.
  while (all.map(({ target, values }) => note(target, values)).some(Boolean)) continue;
  return { isTime, isElapsed };
}

/** What gets which values, where a node says so. */
function assignmentOf(node: ts.Node) {
  if (ts.isFunctionDeclaration(node)) return { target: node.name, values: returned(node) };
  if (ts.isVariableDeclaration(node)) {
    const { name, initializer } = node;
    // A function is a time when it returns one, not when it looks at one.
    const isMade = initializer !== undefined && isFunction(initializer);
    return { target: name, values: isMade ? returned(initializer) : [initializer] };
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
    return { target: node.left, values: [node.right] };
  }
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) {
    return undefined;
  }
  const { expression, name } = node.expression;
  if (!FILLING.includes(name.text)) return undefined;
  return { target: expression, values: node.arguments.filter((one) => !isFunction(one)) };
}

/**
 * Whether an expression or a part of it is one; what only counts things is none. What a callback
 * does is not what the call returns, unless the callback is but an expression.
 */
function contains(node: ts.Node | undefined, is: (part: ts.Node) => boolean): boolean {
  if (node === undefined || (ts.isBlock(node) && ts.isFunctionLike(node.parent))) return false;
  if (ts.isPropertyAccessExpression(node) && COUNTS.includes(node.name.text)) return false;
  if (is(node)) return true;
  return ts.forEachChild(node, (child) => (contains(child, is) ? true : undefined)) === true;
}

/** Whether a node stands for a value, and not for the name of a member. */
function isName(node: ts.Node): node is ts.Identifier {
  if (!ts.isIdentifier(node)) return false;
  const { parent } = node;
  const isMember = ts.isPropertyAccessExpression(parent) || ts.isPropertyAssignment(parent);
  return !isMember || parent.name !== node;
}

/** Tells names apart that are the same in two blocks of a file. */
function scopesOf({ tree }: Source): (name: ts.Identifier) => string {
  const declared = new Map<ts.Node, Set<string>>();
  const scopeAround = (node: ts.Node): ts.Node => {
    let { parent } = node;
    while (!ts.isSourceFile(parent) && !isScope(parent)) ({ parent } = parent);
    return parent;
  };
  for (const node of nodes(tree)) {
    const isNamed =
      ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isFunctionDeclaration(node);
    if (!isNamed || node.name === undefined) continue;
    const scope = scopeAround(node);
    const names = declared.get(scope) ?? new Set();
    for (const { text } of namesIn(node.name)) names.add(text);
    declared.set(scope, names);
  }
  return (name) => {
    let scope = scopeAround(name);
    while (!ts.isSourceFile(scope) && declared.get(scope)?.has(name.text) !== true) {
      scope = scopeAround(scope);
    }
    return `${name.text}@${scope.pos}`;
  };
}

function isScope(node: ts.Node): boolean {
  return ts.isBlock(node) || ts.isFunctionLike(node) || ts.isIterationStatement(node, false);
}

/** The names that an assignment gives a value to: of `a.b.c = 1`, the first. */
function namesIn(target: ts.Node): readonly ts.Identifier[] {
  if (ts.isIdentifier(target)) return [target];
  if (ts.isPropertyAccessExpression(target) || ts.isElementAccessExpression(target)) {
    return namesIn(target.expression);
  }
  if (ts.isBindingElement(target)) return namesIn(target.name);
  if (ts.isObjectBindingPattern(target) || ts.isArrayBindingPattern(target)) {
    return target.elements.flatMap((element) => namesIn(element));
  }
  if (ts.isArrayLiteralExpression(target)) return target.elements.flatMap((one) => namesIn(one));
  return [];
}

/** The value of a number, of a product of numbers, or of a constant of the file. */
function constantsOf(source: Source): (node: ts.Node | undefined) => number | undefined {
  const initializers = new Map<string, ts.Expression>();
  for (const node of nodes(source.tree)) {
    if (!ts.isVariableDeclaration(node) || node.initializer === undefined) continue;
    if (ts.isIdentifier(node.name)) initializers.set(node.name.text, node.initializer);
  }
  const valueOf = (node: ts.Node | undefined): number | undefined => {
    if (node === undefined) return undefined;
    if (ts.isNumericLiteral(node)) return Number(node.text.replaceAll('_', ''));
    if (ts.isIdentifier(node)) return valueOf(initializers.get(node.text));
    const isProduct =
      ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.AsteriskToken;
    if (!isProduct) return undefined;
    const [left, right] = [valueOf(node.left), valueOf(node.right)];
    return left === undefined || right === undefined ? undefined : left * right;
  };
  return valueOf;
}

/** The milliseconds of `500` or `'5s'`. */
function durationOf(node: ts.Node): number | undefined {
  if (ts.isNumericLiteral(node)) return Number(node.text.replaceAll('_', ''));
  if (!ts.isStringLiteralLike(node)) return undefined;
  const [, count, unit = ''] = /^(\d+)([a-z]+)$/.exec(node.text) ?? [];
  const unitMs = UNIT_MS[unit];
  return count === undefined || unitMs === undefined ? undefined : Number(count) * unitMs;
}

/** The value of an option in an object among the arguments of a call. */
function optionOf(call: ts.CallExpression, name: string): ts.Node | undefined {
  for (const argument of call.arguments) {
    if (!ts.isObjectLiteralExpression(argument)) continue;
    for (const property of argument.properties) {
      if (property.name?.getText() !== name) continue;
      if (ts.isPropertyAssignment(property)) return property.initializer;
      if (ts.isShorthandPropertyAssignment(property)) return property.name;
    }
  }
  return undefined;
}

/** `test`, `test.each(rows)`, `describe.skipIf(reason)` and so on. */
function isTest(callee: string): boolean {
  return /^(?:test|it|describe)(?:\.|$)/.test(callee);
}

/** Whether a call starts a program: by its name, or by options that only programs have. */
function isStart(call: ts.CallExpression, callee: string): boolean {
  if (STARTS.includes(callee.replace(/^\w+\./, ''))) return true;
  return ['cwd', 'env', 'stdio', 'killSignal'].some((name) => optionOf(call, name) !== undefined);
}

function tooShort(ms: number | undefined, minMs: number): string | undefined {
  if (ms === undefined || ms >= minMs) return undefined;
  return `waits for ${ms} ms: leave the limit out, or take ${minMs} and more`;
}

/** The text of what is called, without line breaks: `test.each(rows)`, `vi.waitFor`. */
function calleeOf(call: ts.CallExpression): string {
  return call.expression.getText().replace(/\s/g, '');
}

function textOf(node: ts.Node | undefined): string {
  return node?.getText() ?? '';
}

function isClockRead(node: ts.Node): boolean {
  return ts.isCallExpression(node) && CLOCK_READS.test(calleeOf(node));
}

function isFunction(node: ts.Node): node is ts.ArrowFunction | ts.FunctionExpression {
  return ts.isArrowFunction(node) || ts.isFunctionExpression(node);
}

/** What a function returns; not what the functions in it do. */
function returned({ body }: ts.ArrowFunction | ts.FunctionExpression | ts.FunctionDeclaration) {
  const found: ts.Node[] = [];
  const walk = (node: ts.Node): void => {
    if (ts.isReturnStatement(node) && node.expression !== undefined) found.push(node.expression);
    if (!ts.isFunctionLike(node)) ts.forEachChild(node, walk);
  };
  if (body !== undefined) {
    if (ts.isBlock(body)) walk(body);
    else found.push(body);
  }
  return found;
}

function everyNode(source: Source, judge: (node: ts.Node) => string | undefined): Violation[] {
  return nodes(source.tree).flatMap((node) => {
    const what = judge(node);
    if (what === undefined) return [];
    return [{ path: source.path, line: lineOf(source.tree, node), what }];
  });
}
