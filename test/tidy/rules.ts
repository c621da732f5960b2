/**
 * rules — what a file in src/ may look like, each rule a pure function from files to violations.
 *
 * tidy.test.ts runs every rule on src/ and on small samples that show what it catches.
 */
import { builtinModules } from 'node:module';
import ts from 'typescript';
import { type Import, lineOf, nodes, type Source } from './source.ts';

export interface Violation {
  readonly path: string;
  readonly line: number;
  readonly what: string;
}

/** From the top floor to the ground: the rooms on each. */
export type Floors = Readonly<Record<number, readonly string[]>>;

export type Rule = (sources: readonly Source[], floors: Floors) => Violation[];

const FILE_MAX_LINES = 700;
const FUNCTION_MAX_LINES = 70;
const LINE_MAX_CHARS = 100;
/** Fewer lines make a small file. */
const SMALL_FILE_LINES = 60;
/** Small files with one importer, and why each is a file. */
export const SMALL_FILES: Readonly<Record<string, string>> = {};
const FRONT_DOOR = 'index.ts';
const COMMANDS_FILE = 'cli/commands.ts';
const PEER_FILE = 'system/peer.ts';

const DEPENDENCY_FREE_ROOMS = ['core', 'ports', 'engine', 'spool', 'operator', 'dead-letters'];
const OPTIONAL_PEERS =
  /^(?:pg|amqplib|snappy|lz4-napi|@nats-io\/.+|@aws-sdk\/.+|@opentelemetry\/.+)$/;
const TIME_AND_CHANCE_MEMBERS = [
  'Date.now',
  'Math.random',
  'performance.now',
  'process.hrtime',
  'AbortSignal.timeout',
  'Temporal.Now',
];
const TIMERS = ['setTimeout', 'setInterval', 'setImmediate'];
const TIMER_MODULES = ['node:timers', 'node:timers/promises'];

export const importsPointDown: Rule = (sources, floors) =>
  everyImport(sources, (source, { target, specifier, line }) => {
    if (target === undefined || source.path === FRONT_DOOR) return [];
    const [from, to] = [roomOf(source.path), roomOf(target)];
    if (from === to) return [];
    const [fromFloor, toFloor] = [floorOf(from, floors), floorOf(to, floors)];
    if (fromFloor === undefined) return [at(source, line, `"${from}" is not a room of the table`)];
    if (toFloor === undefined) return [at(source, line, `"${to}" is not a room of the table`)];
    if (toFloor < fromFloor) return [];
    const story = `${from} (floor ${fromFloor}) must not see ${to} (floor ${toFloor})`;
    return [at(source, line, `imports "${specifier}": ${story}`)];
  });

/** Folders of one room, from the bottom to the top; a file beside them stands by its name. */
const FOLDERS: Readonly<Record<string, readonly string[]>> = {
  rabbit: [
    'connection',
    'management',
    'topology',
    'message-history.ts',
    'compat',
    'publish',
    'admin',
    'consume',
    'queues',
    'migrate',
    'index.ts',
  ],
};

export const foldersPointDown: Rule = (sources) =>
  everyImport(sources, (source, { target, specifier, line }) => {
    const [room = '', from = ''] = source.path.split('/');
    const folders = FOLDERS[room];
    const [toRoom, to = ''] = (target ?? '').split('/');
    if (folders === undefined || toRoom !== room || from === to) return [];
    const unknown = [from, to].find((folder) => !folders.includes(folder));
    if (unknown !== undefined) return [at(source, line, `"${unknown}" is not in the table`)];
    if (folders.indexOf(to) < folders.indexOf(from)) return [];
    return [at(source, line, `imports "${specifier}": ${room}/${from} must not see ${to}`)];
  });

export const importsNameExistingFiles: Rule = (sources) => {
  const known = new Set(sources.map((source) => source.path));
  return everyImport(sources, (source, { target, specifier, line }) => {
    if (specifier === 'respool' || specifier?.startsWith('respool/') === true) {
      return [at(source, line, `imports "${specifier}": use a relative path inside src/`)];
    }
    if (target === undefined || target.endsWith('.json') || known.has(target)) return [];
    return [at(source, line, `imports "${specifier}": no such file in src/ (write the .ts)`)];
  });
};

/** Not in quotes: those are the files of users. Paths into other folders have their own readers. */
const NAMED_FILE =
  /(?<![\w'"`./-])(?!bench\/|test\/|scripts\/)(?:\.{0,2}\/)*((?:[\w-]+\/)*[\w.-]+\.ts)\b/g;
const COMMENT = /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*/g;

/** A comment that sends its reader to another file has to be changed with that file's name. */
export const commentsNameExistingFiles: Rule = (sources) => {
  const paths = sources.map(({ path }) => `/${path}`);
  return sources.flatMap((source) =>
    [...source.text.matchAll(COMMENT)].flatMap((comment) =>
      [...comment[0].matchAll(NAMED_FILE)].flatMap((named) => {
        const name = `/${named[1]?.replace(/^src\//, '')}`;
        if (name.includes('respool.config.') || paths.some((one) => one.endsWith(name))) return [];
        const line = source.text.slice(0, comment.index + named.index).split('\n').length;
        return [at(source, line, `a comment names "${named[0]}", which is no file`)];
      }),
    ),
  );
};

export const importsFormNoCycle: Rule = (sources) => {
  const byPath = new Map(sources.map((source) => [source.path, source]));
  const done = new Set<string>();
  const violations: Violation[] = [];
  const visit = (source: Source, trail: readonly string[]): void => {
    if (done.has(source.path)) return;
    for (const { kind, target, line } of source.imports) {
      // A worker named by its URL runs in another thread; it may share its types with the parent.
      const next = kind === 'url' || target === undefined ? undefined : byPath.get(target);
      if (next === undefined) continue;
      const loopStart = [...trail, source.path].indexOf(next.path);
      if (loopStart === -1) visit(next, [...trail, source.path]);
      else {
        const loop = [...trail, source.path].slice(loopStart);
        violations.push(at(source, line, `cycle: ${[...loop, next.path].join(' → ')}`));
      }
    }
    done.add(source.path);
  };
  for (const source of sources) visit(source, []);
  return violations;
};

export const timeAndChanceLiveInSystem: Rule = (sources) =>
  sources
    .filter((source) => roomOf(source.path) !== 'system')
    .flatMap((source) => [
      ...everyNode(source, timeOrChance),
      ...source.imports
        .filter(({ specifier }) => TIMER_MODULES.includes(specifier ?? ''))
        .map(({ line, specifier }) => at(source, line, `imports "${specifier}"`)),
    ]);

export const onlyTheCommandLinePrintsOrExits: Rule = (sources) =>
  sources
    .filter((source) => roomOf(source.path) !== 'cli')
    .flatMap((source) =>
      everyNode(source, (node) => {
        if (memberName(node) === 'process.exit') return 'calls process.exit';
        return isUseOf(node, ['console']) ? 'uses console' : undefined;
      }),
    );

export const portsHoldTypesOnly: Rule = (sources) =>
  sources
    .filter((source) => roomOf(source.path) === 'ports')
    .flatMap((source) =>
      source.tree.statements
        .filter((statement) => !isTypeStatement(statement))
        .map((statement) => at(source, lineOf(source.tree, statement), 'is run-time code')),
    );

export const filesAreShort: Rule = (sources) =>
  sources.flatMap((source) => {
    const lines = lineCount(source);
    if (lines <= FILE_MAX_LINES) return [];
    return [at(source, lines, `has ${lines} lines, at most ${FILE_MAX_LINES}`)];
  });

/** A small file that one other imports belongs into that one, or has a reason of its own. */
export const smallFilesHaveAReason: Rule = (sources) =>
  smallFiles(sources).filter((violation) => SMALL_FILES[violation.path] === undefined);

/**
 * Small files that one other imports. What a door exports and the commands are one per file; what
 * is loaded late, or runs in another thread, has to be a file.
 */
export function smallFiles(sources: readonly Source[]): Violation[] {
  return sources.flatMap((source) => {
    const lines = lineCount(source);
    if (lines >= SMALL_FILE_LINES || source.path.endsWith(FRONT_DOOR)) return [];
    const importers = sources.filter((one) => importsOf(one, source).length > 0);
    const [importer] = importers;
    if (importer === undefined || importers.length > 1) return [];
    const isDoor = importer.path.endsWith(FRONT_DOOR) || importer.path === COMMANDS_FILE;
    const isByNeed = importsOf(importer, source).some(({ kind }) => kind !== 'static');
    if (isDoor || isByNeed) return [];
    return [at(source, lines, `has ${lines} lines, and only ${importer.path} imports it`)];
  });
}

export const functionsAreShort: Rule = (sources) =>
  sources.flatMap((source) =>
    everyNode(source, (node) => {
      if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined)
        return undefined;
      // A conformance suite is a long list of cases; there, each case is measured by itself.
      const lines = roomOf(source.path) === 'testkit' ? ownLines(node) : spanLines(node);
      if (lines <= FUNCTION_MAX_LINES) return undefined;
      return `function has ${lines} lines, at most ${FUNCTION_MAX_LINES}`;
    }),
  );

export const linesAreShort: Rule = (sources) =>
  everyLine(sources, (line) => {
    // A link cannot be broken in two.
    const length = Array.from(line.replace(/https?:\/\/\S+$/, '')).length;
    return length > LINE_MAX_CHARS
      ? `has ${length} characters, at most ${LINE_MAX_CHARS}`
      : undefined;
  });

export const syntaxIsErasable: Rule = (sources) =>
  sources.flatMap((source) =>
    everyNode(source, (node) => {
      if (ts.isEnumDeclaration(node)) return 'is an enum';
      const isNamespace =
        ts.isModuleDeclaration(node) && (node.flags & ts.NodeFlags.Namespace) !== 0;
      return isNamespace ? 'is a namespace' : undefined;
    }),
  );

export const heartHasNoDependency: Rule = (sources) =>
  everyImport(sources, (source, { specifier, line }) => {
    if (specifier === undefined || specifier.startsWith('.')) return [];
    const room = roomOf(source.path);
    if (builtinModules.includes(specifier)) {
      return [at(source, line, `imports "${specifier}": write "node:${specifier}"`)];
    }
    if (specifier.startsWith('node:')) {
      return room === 'core' ? [at(source, line, `imports "${specifier}": core has no I/O`)] : [];
    }
    const isAllowed =
      room === 'system' ? specifier === 'uuidv7' : !DEPENDENCY_FREE_ROOMS.includes(room);
    return isAllowed ? [] : [at(source, line, `imports the package "${specifier}"`)];
  });

export const clientsAreLoadedThroughPeer: Rule = (sources) =>
  everyImport(sources, (source, { kind, specifier, isTypeOnly, line }) => {
    if (isTypeOnly || source.path === PEER_FILE) return [];
    if (specifier === 'better-sqlite3') {
      const isClient = /^stores\/[^/]+\/(?:.+\/)?client\.ts$/.test(source.path);
      return isClient ? [] : [at(source, line, 'imports better-sqlite3 outside a client.ts')];
    }
    const isPackage = specifier === undefined || !/^(?:\.|node:)/.test(specifier);
    if (kind === 'dynamic' && isPackage) {
      return [at(source, line, `loads "${specifier ?? 'a computed name'}" without ${PEER_FILE}`)];
    }
    const isPeer = specifier !== undefined && OPTIONAL_PEERS.test(specifier);
    return isPeer ? [at(source, line, `imports "${specifier}" without ${PEER_FILE}`)] : [];
  });

export const noMachineIsNamed: Rule = (sources) =>
  sources.flatMap((source) => {
    // Stores do import from ../shared/: that is stores/shared, and only an import may say it.
    const legal = new Set(source.imports.map(({ line }) => line));
    return everyLine([source], (line, number) => {
      if (/(?:^|[\s'"`(=:])\/(?:home|root|work|workspace|Users|mnt)\/\w/.test(line)) {
        return 'names a path of one machine';
      }
      if (/\b[A-Z]:\\\\?\w/.test(line)) return 'names a path of one machine';
      return line.includes('../shared') && !isImportLine(line, number, legal)
        ? 'names a folder outside the project'
        : undefined;
    });
  });

/** `stores/sqlite/client.ts` is in the room `stores/sqlite`; `core/state.ts` in `core`. */
function roomOf(path: string): string {
  const parts = path.split('/');
  if (parts.length === 1 || parts[0] === '..') return path;
  return parts[0] === 'stores' ? parts.slice(0, 2).join('/') : (parts[0] ?? path);
}

function floorOf(room: string, floors: Floors): number | undefined {
  if (room === FRONT_DOOR) return Number.POSITIVE_INFINITY;
  const found = Object.entries(floors).find(([, rooms]) => rooms.includes(room));
  return found === undefined ? undefined : Number(found[0]);
}

function timeOrChance(node: ts.Node): string | undefined {
  const member = memberName(node);
  if (member !== undefined && TIME_AND_CHANCE_MEMBERS.includes(member)) return `uses ${member}`;
  if (ts.isNewExpression(node) && node.expression.getText() === 'Date') {
    return (node.arguments?.length ?? 0) === 0 ? 'uses new Date()' : undefined;
  }
  if (ts.isCallExpression(node) && node.expression.getText() === 'Date') return 'uses Date()';
  return isUseOf(node, TIMERS) ? `uses ${node.getText()}` : undefined;
}

function memberName(node: ts.Node): string | undefined {
  if (!ts.isPropertyAccessExpression(node)) return undefined;
  return node
    .getText()
    .replace(/\s|\?/g, '')
    .replace(/^globalThis\./, '');
}

/** Whether the node is one of these globals in use, and not a member or a type of that name. */
function isUseOf(node: ts.Node, names: readonly string[]): boolean {
  if (!ts.isIdentifier(node) || !names.includes(node.text)) return false;
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent) && parent.name === node) {
    return parent.expression.getText() === 'globalThis';
  }
  if (ts.isTypeQueryNode(parent) || ts.isTypeElement(parent)) return false;
  const isName = 'name' in parent && parent.name === node;
  return !isName || ts.isShorthandPropertyAssignment(parent);
}

function isTypeStatement(node: ts.Statement): boolean {
  if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return true;
  if (ts.isImportDeclaration(node)) return node.importClause?.isTypeOnly === true;
  return ts.isExportDeclaration(node) && node.isTypeOnly;
}

function isImportLine(line: string, number: number, legal: ReadonlySet<number>): boolean {
  // The specifier of an import over several lines stands on its last line.
  return legal.has(number) || /^\} from '\.\.\/shared\/[\w./-]+';$/.test(line);
}

function lineCount({ text }: Source): number {
  return text.replace(/\n$/, '').split('\n').length;
}

function importsOf(source: Source, file: Source): readonly Import[] {
  return source.imports.filter(({ target }) => target === file.path);
}

function spanLines(node: ts.Node): number {
  const { first, last } = span(node);
  return last - first + 1;
}

function ownLines(node: ts.Node): number {
  let lines = spanLines(node);
  const subtract = (child: ts.Node): void => {
    if (ts.isFunctionLike(child)) lines -= spanLines(child) - 1;
    else ts.forEachChild(child, subtract);
  };
  ts.forEachChild(node, subtract);
  return lines;
}

function span(node: ts.Node): { first: number; last: number } {
  const tree = node.getSourceFile();
  const last = tree.getLineAndCharacterOfPosition(node.getEnd()).line + 1;
  return { first: lineOf(tree, node), last };
}

function at(source: Source, line: number, what: string): Violation {
  return { path: source.path, line, what };
}

function everyImport(
  sources: readonly Source[],
  judge: (source: Source, found: Import) => Violation[],
): Violation[] {
  return sources.flatMap((source) => source.imports.flatMap((found) => judge(source, found)));
}

function everyNode(source: Source, judge: (node: ts.Node) => string | undefined): Violation[] {
  return nodes(source.tree).flatMap((node) => {
    const what = judge(node);
    return what === undefined ? [] : [at(source, lineOf(source.tree, node), what)];
  });
}

function everyLine(
  sources: readonly Source[],
  judge: (line: string, number: number) => string | undefined,
): Violation[] {
  return sources.flatMap((source) =>
    source.text.split('\n').flatMap((line, index) => {
      const what = judge(line, index + 1);
      return what === undefined ? [] : [at(source, index + 1, what)];
    }),
  );
}
