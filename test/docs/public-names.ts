/**
 * public-names — what each subpath of the package exports: names with their sentence, their
 * examples and the names that they refer to.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { ROOT } from './pages.ts';

/** One exported name. */
export interface PublicName {
  readonly name: string;
  /** The doc comment of its declaration, without tags. */
  readonly sentence: string;
  /** The `@example` blocks of its declaration. */
  readonly examples: readonly string[];
  /** A function, class or constant; not exported as a type only. */
  readonly isValue: boolean;
}

/** One subpath. */
export interface PublicDoor {
  /** As users import it. */
  readonly subpath: string;
  readonly names: readonly PublicName[];
  /** Exported types that no exported value leads to. */
  readonly orphans: readonly string[];
}

/** Every subpath of `package.json`. */
export function readDoors(): readonly PublicDoor[] {
  const files = sourcesOfDoors();
  const program = ts.createProgram([...files.values()], {
    noLib: true,
    noEmit: true,
    types: [],
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    allowImportingTsExtensions: true,
  });
  return [...files].map(([subpath, file]) => readDoor(program, subpath, file));
}

function sourcesOfDoors(): ReadonlyMap<string, string> {
  const text = readFileSync(path.join(ROOT, 'package.json'), 'utf8');
  const { exports } = JSON.parse(text) as {
    readonly exports: Readonly<Record<string, { readonly 'respool-source': string }>>;
  };
  return new Map(
    Object.entries(exports).map(([key, door]) => [
      path.posix.join('respool', key),
      path.join(ROOT, door['respool-source']),
    ]),
  );
}

function readDoor(program: ts.Program, subpath: string, file: string): PublicDoor {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`cannot read ${file}`);
  const exported = checker.getExportsOfModule(module);
  const typeOnly = new Set(exported.filter((symbol) => isTypeOnly(symbol)));
  const names = exported.map((symbol): PublicName => {
    const target = targetOf(checker, symbol);
    const tags = target.getJsDocTags(checker).filter(({ name }) => name === 'example');
    return {
      name: symbol.name,
      sentence: ts.displayPartsToString(target.getDocumentationComment(checker)).trim(),
      examples: tags.map(({ text }) => ts.displayPartsToString(text)),
      isValue: (target.flags & ts.SymbolFlags.Value) !== 0 && !typeOnly.has(symbol),
    };
  });
  const isRoot = new Set(names.filter(({ isValue }) => isValue).map(({ name }) => name));
  // Where nothing but types is exported, they are what the subpath is for.
  const roots = exported.filter(({ name }) => isRoot.size === 0 || isRoot.has(name));
  const used = reachable(
    checker,
    roots.map((symbol) => targetOf(checker, symbol)),
  );
  const orphans = exported
    .filter((symbol) => !used.has(targetOf(checker, symbol)))
    .map(({ name }) => name);
  return { subpath, names, orphans };
}

/** `export type { … }`, `export { type … }` or `export type *`, here or on the way. */
function isTypeOnly(symbol: ts.Symbol): boolean {
  return (symbol.declarations ?? []).some((node) => ts.isTypeOnlyExportDeclaration(node));
}

function targetOf(checker: ts.TypeChecker, symbol: ts.Symbol): ts.Symbol {
  const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
  return isAlias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** What declarations name, and what those name in turn; the bodies of functions left out. */
function reachable(checker: ts.TypeChecker, roots: readonly ts.Symbol[]): ReadonlySet<ts.Symbol> {
  const found = new Set(roots);
  const queue = [...roots];
  const visit = (node: ts.Node): void => {
    if (ts.isBlock(node) || ts.isPrivateIdentifier(node)) return;
    if (ts.isPropertyDeclaration(node) && ts.isPrivateIdentifier(node.name)) return;
    if (ts.isIdentifier(node)) {
      const named = checker.getSymbolAtLocation(node);
      const target = named && targetOf(checker, named);
      if (target !== undefined && !found.has(target)) {
        found.add(target);
        queue.push(target);
      }
    }
    ts.forEachChild(node, visit);
  };
  for (let symbol = queue.pop(); symbol !== undefined; symbol = queue.pop()) {
    for (const node of symbol.declarations ?? []) {
      // Not a whole file: that is what `import * as` names.
      if (!ts.isSourceFile(node)) visit(node);
    }
  }
  return found;
}

/** The names that a program imports, by subpath. */
export function* importsOf(program: string): Generator<readonly [subpath: string, name: string]> {
  const file = ts.createSourceFile('example.ts', program, ts.ScriptTarget.Latest);
  for (const node of file.statements) {
    if (!ts.isImportDeclaration(node) || !ts.isStringLiteral(node.moduleSpecifier)) continue;
    const bindings = node.importClause?.namedBindings;
    if (bindings === undefined || !ts.isNamedImports(bindings)) continue;
    for (const { name, propertyName } of bindings.elements) {
      yield [node.moduleSpecifier.text, (propertyName ?? name).text];
    }
  }
}
