/**
 * name-rules — what a file or an exported name in src/ may be called, each rule a pure function.
 *
 * names.test.ts runs every rule on src/, on small samples, and against the lists of known-names.ts.
 */
import ts from 'typescript';
import type { Source } from './source.ts';

export interface BadName {
  readonly path: string;
  /** What a list of exceptions calls it. */
  readonly key: string;
  readonly what: string;
}

export type NameRule = (sources: readonly Source[]) => BadName[];

interface ExportedName {
  readonly path: string;
  readonly name: string;
  readonly isInterface: boolean;
}

/** Each has two to ten meanings in this project; a qualified name (`KeyPlace`) says which. */
const AMBIGUOUS = new Set(
  'desk flow gate guard intake journal keeper lane ledger line look pass place slot turn window'
    .split(' ')
    .flatMap((word) => [word, word === 'pass' ? 'passes' : `${word}s`]),
);

const IRREGULAR_PARTICIPLES = new Set(
  (
    'begun bound built chosen done drawn fallen found given gone heard held hidden kept known laid ' +
    'left lost made meant met said seen sent shown spent taken taught thought thrown told ' +
    'understood worn written'
  ).split(' '),
);
/** Those that parameters were called most often. */
const PARTICIPLES = new Set(
  'asked found given held kept known left made said seen sent taken told wanted'.split(' '),
);
/** Nouns and verbs, and `shared`, which is what rooms of several users are called. */
const NO_PARTICIPLES = new Set(['embed', 'exceed', 'feed', 'need', 'seed', 'shared', 'speed']);

/** `told.ts`, `Swept`: a participle alone does not say what the thing is. */
export const namesAreNoBareParticiples: NameRule = (sources) =>
  bareNames(sources, (word) =>
    isParticiple(word) ? 'is a participle alone: name the thing' : undefined,
  );

/** `flows.ts`, `Place`: which of the meanings it is, only a qualified name says. */
export const namesAreNotAmbiguous: NameRule = (sources) =>
  bareNames(sources, (word) =>
    AMBIGUOUS.has(word) ? 'has several meanings in this project: qualify it' : undefined,
  );

/** Stores have the same names for the same work on purpose; other rooms share none. */
export const roomsShareNoExportedName: NameRule = (sources) => {
  const rooms = new Map<string, Map<string, string>>();
  for (const { path, name } of exportedNames(sources)) {
    const known = rooms.get(name) ?? new Map<string, string>();
    rooms.set(name, known.set(roomOf(path), path));
  }
  return [...rooms].flatMap(([name, paths]) => {
    const path = [...paths.values()].at(-1);
    if (paths.size < 2 || path === undefined) return [];
    const where = [...paths.values()].join(' and ');
    return [{ path, key: name, what: `"${name}" is exported by ${where}` }];
  });
};

/** A bag of dependencies hides what a class needs, and grows without being noticed. */
export const partsAreNeeded: NameRule = (sources) =>
  sources.flatMap(({ path, tree }) =>
    tree.statements
      .filter((statement) => ts.isInterfaceDeclaration(statement))
      .map(({ name }) => name.text)
      .filter((name) => name.endsWith('Parts'))
      .map((name) => ({ path, key: name, what: `"${name}" is one more bag of parts` })),
  );

/** `given: RouteOptions`: a parameter is called what it is, not what happened to it. */
export const parametersAreNoBareParticiples: NameRule = (sources) =>
  sources.flatMap(({ path, tree }) => {
    const list: BadName[] = [];
    const visit = (node: ts.Node): void => {
      if (ts.isParameter(node) && ts.isIdentifier(node.name) && PARTICIPLES.has(node.name.text)) {
        const { text } = node.name;
        list.push({
          path,
          key: `${path} ${text}`,
          what: `has a parameter "${text}": name the thing`,
        });
      }
      ts.forEachChild(node, visit);
    };
    visit(tree);
    return list;
  });

function bareNames(
  sources: readonly Source[],
  judge: (word: string) => string | undefined,
): BadName[] {
  const files = sources.map(({ path }) => ({ path, name: fileNameOf(path) }));
  return [...files, ...exportedNames(sources)].flatMap(({ path, name }) => {
    const isOneWord = /^(?:[A-Za-z]?[a-z]+|[A-Z]+)$/.test(name);
    const why = isOneWord ? judge(name.toLowerCase()) : undefined;
    return why === undefined ? [] : [{ path, key: `${path} ${name}`, what: `"${name}" ${why}` }];
  });
}

function isParticiple(word: string): boolean {
  if (IRREGULAR_PARTICIPLES.has(word)) return true;
  return /^[a-z]+ed$/.test(word) && !NO_PARTICIPLES.has(word);
}

function fileNameOf(path: string): string {
  return path.replace(/^.*\//, '').replace(/\.tsx?$/, '');
}

/** The stores are one room here: what one of them exports, the others may export too. */
function roomOf(path: string): string {
  return path.split('/')[0] ?? path;
}

function exportedNames(sources: readonly Source[]): ExportedName[] {
  return sources.flatMap(({ path, tree }) =>
    tree.statements.flatMap((statement) => {
      const isInterface = ts.isInterfaceDeclaration(statement);
      return declaredNames(statement).map((name) => ({ path, name, isInterface }));
    }),
  );
}

function declaredNames(statement: ts.Statement): string[] {
  const modifiers = ts.canHaveModifiers(statement) ? ts.getModifiers(statement) : undefined;
  const isExported = modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) ?? false;
  if (!isExported) return [];
  if (ts.isVariableStatement(statement)) {
    return statement.declarationList.declarations.map(({ name }) => name.getText());
  }
  const isNamed =
    ts.isFunctionDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement);
  return isNamed && statement.name !== undefined ? [statement.name.text] : [];
}
