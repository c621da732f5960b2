/**
 * door-rules — how a test may import the package, each rule a pure function from files to
 * violations.
 *
 * A door is a subpath of package.json. A test that goes through the doors proves what users get,
 * and does not change when files of src/ move. doors.test.ts runs the rules on test/ and on samples.
 */
import ts from 'typescript';
import type { Violation } from './rules.ts';
import { type Import, lineOf, nodes, type Source } from './source.ts';

/** From what users import to its file in src/: `respool/rabbit` → `rabbit/index.ts`. */
export type Doors = Readonly<Record<string, string>>;

/** Where a name is declared: `core/errors.ts RespoolError`. */
type Origin = string;

const TO_SRC = /^(?:\.\.\/)+src\//;

/** A name that a door exports is imported from there. */
export function publicNamesComeFromDoors(
  tests: readonly Source[],
  sources: readonly Source[],
  doors: Doors,
): Violation[] {
  const originOf = originsOf(sources);
  const byOrigin = new Map<Origin, string[]>();
  for (const [door, file] of Object.entries(doors)) {
    for (const [name, origin] of originOf.all(file)) {
      byOrigin.set(origin, [...(byOrigin.get(origin) ?? []), `"${name}" from "${door}"`]);
    }
  }
  return tests.flatMap((test) =>
    importedNames(test).flatMap(({ file, name, line }) => {
      const found = byOrigin.get(originOf.one(file, name));
      if (found === undefined) return [];
      return [{ path: test.path, line, what: `imports ${name} of ${file}: take ${found[0]}` }];
    }),
  );
}

/** The files of src/ that a test imports past the doors. */
export function internalModules(test: Source): string[] {
  const paths = test.imports.flatMap(({ target }) => srcPath(target) ?? []);
  return [...new Set(paths)].sort();
}

interface ImportedName {
  /** The file in src/ that is named. */
  readonly file: string;
  readonly name: string;
  readonly line: number;
}

/** What a file imports from files of src/, by name. */
function importedNames(source: Source): ImportedName[] {
  const targets = new Map(source.imports.map(({ specifier, target }) => [specifier, target]));
  const fileOf = (specifier: string | undefined): string | undefined =>
    srcPath(targets.get(specifier));
  return nodes(source.tree).flatMap((node) => {
    const line = lineOf(source.tree, node);
    if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
      const file = fileOf(textOf(node.argument.literal));
      const name = node.qualifier?.getText();
      return file === undefined || name === undefined ? [] : [{ file, name, line }];
    }
    if (!ts.isImportDeclaration(node) && !ts.isExportDeclaration(node)) return [];
    const file = fileOf(textOf(node.moduleSpecifier));
    if (file === undefined) return [];
    return elementsOf(node).map((one) => ({
      file,
      name: (one.propertyName ?? one.name).text,
      line: lineOf(source.tree, one),
    }));
  });
}

function srcPath(target: string | undefined): string | undefined {
  return target !== undefined && TO_SRC.test(target) ? target.replace(TO_SRC, '') : undefined;
}

/** Follows re-exports to the declaration. */
function originsOf(sources: readonly Source[]) {
  const byPath = new Map(sources.map((source) => [source.path, exportsOf(source)]));
  const one = (file: string, name: string): Origin => {
    const from = byPath.get(file)?.get(name);
    if (from === undefined || from.file === file) return `${file} ${from?.name ?? name}`;
    return one(from.file, from.name);
  };
  const all = (file: string): Map<string, Origin> =>
    new Map([...(byPath.get(file)?.keys() ?? [])].map((name) => [name, one(file, name)]));
  return { one, all };
}

interface Declared {
  readonly file: string;
  readonly name: string;
}

/** From each exported name to where the file has it from, which may be itself. */
function exportsOf({ path, tree, imports }: Source): Map<string, Declared> {
  const targetOf = targetsOf(imports);
  const imported = new Map<string, Declared>();
  const exported = new Map<string, Declared>();
  const link = (
    into: Map<string, Declared>,
    node: ts.ImportDeclaration | ts.ExportDeclaration,
  ): void => {
    const file = targetOf(textOf(node.moduleSpecifier));
    for (const { name, propertyName } of elementsOf(node)) {
      const from = (propertyName ?? name).text;
      const origin = file === undefined ? imported.get(from) : { file, name: from };
      into.set(name.text, origin ?? { file: path, name: from });
    }
  };
  for (const statement of tree.statements) {
    if (ts.isImportDeclaration(statement)) link(imported, statement);
  }
  for (const statement of tree.statements) {
    if (ts.isExportDeclaration(statement)) link(exported, statement);
    else {
      for (const name of declaredNames(statement)) exported.set(name, { file: path, name });
    }
  }
  return exported;
}

function targetsOf(imports: readonly Import[]): (specifier?: string) => string | undefined {
  const targets = new Map(imports.map(({ specifier, target }) => [specifier, target]));
  return (specifier) => (specifier === undefined ? undefined : targets.get(specifier));
}

/** `{ a, b as c }` of an import or a re-export. */
function elementsOf(
  node: ts.ImportDeclaration | ts.ExportDeclaration,
): readonly (ts.ImportSpecifier | ts.ExportSpecifier)[] {
  const clause = ts.isImportDeclaration(node)
    ? node.importClause?.namedBindings
    : node.exportClause;
  if (clause === undefined) return [];
  return ts.isNamedImports(clause) || ts.isNamedExports(clause) ? [...clause.elements] : [];
}

function declaredNames(statement: ts.Statement): string[] {
  const modifiers = ts.canHaveModifiers(statement) ? ts.getModifiers(statement) : undefined;
  if (modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) !== true) return [];
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

function textOf(node: ts.Node | undefined): string | undefined {
  return node !== undefined && ts.isStringLiteralLike(node) ? node.text : undefined;
}
