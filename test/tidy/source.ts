/**
 * source — read the files under test by the tidy rules: their text, syntax tree and imports.
 *
 * Used by the rules and their tests. Nothing here judges.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

export interface Source {
  /** Path relative to the folder that was read, with slashes. */
  readonly path: string;
  readonly text: string;
  readonly tree: ts.SourceFile;
  readonly imports: readonly Import[];
}

export interface Import {
  readonly kind: 'static' | 'dynamic' | 'url';
  /** Undefined when a dynamic import computes what it loads. */
  readonly specifier: string | undefined;
  /** The file meant, relative to that folder; undefined for packages. */
  readonly target: string | undefined;
  readonly isTypeOnly: boolean;
  readonly line: number;
}

export function readSources(folder: string): Source[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .sort()
    .map((file) =>
      parseSource(file.replaceAll('\\', '/'), readFileSync(path.join(folder, file), 'utf8')),
    );
}

export function parseSource(file: string, text: string): Source {
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const imports: Import[] = [];
  for (const node of nodes(tree)) {
    const found = importOf(node);
    if (found === undefined) continue;
    const { specifier } = found;
    const isRelative = specifier?.startsWith('.') === true;
    const target = isRelative ? path.posix.join(path.posix.dirname(file), specifier) : undefined;
    imports.push({ ...found, target, line: lineOf(tree, node) });
  }
  return { path: file, text, tree, imports };
}

/** A node and all below it, parents first. */
export function nodes(root: ts.Node): readonly ts.Node[] {
  const found: ts.Node[] = [];
  const visit = (node: ts.Node): void => {
    found.push(node);
    ts.forEachChild(node, visit);
  };
  visit(root);
  return found;
}

export function lineOf(tree: ts.SourceFile, node: ts.Node): number {
  return tree.getLineAndCharacterOfPosition(node.getStart(tree)).line + 1;
}

function importOf(node: ts.Node): Pick<Import, 'kind' | 'specifier' | 'isTypeOnly'> | undefined {
  if (ts.isImportDeclaration(node)) {
    const isTypeOnly = node.importClause?.isTypeOnly === true;
    return { kind: 'static', specifier: literal(node.moduleSpecifier), isTypeOnly };
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) {
    const { isTypeOnly } = node;
    return { kind: 'static', specifier: literal(node.moduleSpecifier), isTypeOnly };
  }
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
    return { kind: 'static', specifier: literal(node.argument.literal), isTypeOnly: true };
  }
  if (ts.isCallExpression(node)) {
    const isImport = node.expression.kind === ts.SyntaxKind.ImportKeyword;
    const isRequire = ts.isIdentifier(node.expression) && node.expression.text === 'require';
    if (!isImport && !isRequire) return undefined;
    return { kind: 'dynamic', specifier: literal(node.arguments[0]), isTypeOnly: false };
  }
  // `new URL('./worker.ts', import.meta.url)` is how a worker file is named.
  if (ts.isNewExpression(node) && node.expression.getText() === 'URL') {
    const specifier = literal(node.arguments?.[0]);
    const isModule = specifier !== undefined && /^\..*\.tsx?$/.test(specifier);
    if (isModule) return { kind: 'url', specifier, isTypeOnly: false };
  }
  return undefined;
}

function literal(node: ts.Node | undefined): string | undefined {
  return node !== undefined && ts.isStringLiteralLike(node) ? node.text : undefined;
}
