/**
 * declarations — the public types of a package as text that does not depend on its files.
 *
 * For every entry: each exported name with its declaration, members sorted, comments left out.
 * What a declaration names and no entry exports is printed once in a text of its own, as users
 * still see it. Only a changed name or type changes the text, not a declaration that moved.
 */
import path from 'node:path';
import ts from 'typescript';

/** Where a name of the package is public: the first of its entries that exports it. */
interface Home {
  readonly entry: string;
  readonly name: string;
}

/** `entries`: the file of declarations of each entry, by the name users import it under. */
export function printDeclarations(entries: ReadonlyMap<string, string>): {
  readonly byEntry: ReadonlyMap<string, string>;
  readonly unexported: string;
} {
  const program = programOf([...entries.values()]);
  const printer = new DeclarationPrinter(program, entries);
  const byEntry = new Map([...entries.keys()].map((entry) => [entry, printer.print(entry)]));
  return { byEntry, unexported: printer.print(UNEXPORTED) };
}

/** Names are all that is asked for: neither the language nor packages are read. */
function programOf(files: readonly string[]): ts.Program {
  const options = { noLib: true, types: [], module: ts.ModuleKind.ESNext };
  const host = ts.createCompilerHost(options);
  host.resolveModuleNameLiterals = (literals, containing) =>
    literals.map(({ text }) => {
      if (!text.startsWith('.')) return { resolvedModule: undefined };
      const file = path.join(path.dirname(containing), text.replace(/\.[jt]s$/, '.d.ts'));
      return { resolvedModule: { resolvedFileName: file, extension: ts.Extension.Dts } };
    });
  return ts.createProgram(files, options, host);
}

/** The entry of what no other entry exports. */
const UNEXPORTED = 'unexported';

class DeclarationPrinter {
  readonly #checker: ts.TypeChecker;
  readonly #printer = ts.createPrinter({ removeComments: true });
  readonly #exports = new Map<string, ReadonlyMap<string, ts.Symbol>>();
  readonly #homes = new Map<ts.Symbol, Home>();

  constructor(program: ts.Program, entries: ReadonlyMap<string, string>) {
    this.#checker = program.getTypeChecker();
    for (const [entry, file] of entries) {
      const source = program.getSourceFile(file);
      const module = source && this.#checker.getSymbolAtLocation(source);
      if (module === undefined) throw new Error(`cannot read the declarations of ${entry}`);
      const exports = this.#checker.getExportsOfModule(module);
      this.#add(
        entry,
        exports.map((symbol): [string, ts.Symbol] => [symbol.name, this.#target(symbol)]),
      );
    }
    this.#add(UNEXPORTED, this.#reach());
  }

  /** The text of an entry: imports, names that another entry exports as well, declarations. */
  print(entry: string): string {
    const exports = this.#exports.get(entry) ?? new Map<string, ts.Symbol>();
    const scope = new Scope(exports);
    const parts: string[] = [];
    for (const [name, symbol] of exports) {
      const home = this.#homes.get(symbol);
      if (home?.entry === entry && home.name === name) {
        parts.push(...this.#declarations(symbol, name, scope));
      } else if (home !== undefined) {
        const what = home.name === name ? name : `${home.name} as ${name}`;
        parts.push(`export { ${what} } from '${home.entry}';`);
      }
    }
    return [...scope.imports(), ...parts].join('\n\n');
  }

  #add(entry: string, exports: readonly (readonly [string, ts.Symbol])[]): void {
    const sorted = [...exports].sort(([a], [b]) => compare(a, b));
    this.#exports.set(entry, new Map(sorted));
    for (const [name, symbol] of sorted) {
      if (!this.#homes.has(symbol)) this.#homes.set(symbol, { entry, name });
    }
  }

  /** What exports name without being it; among several of one name the text decides the number. */
  #reach(): [string, ts.Symbol][] {
    const found = new Set<ts.Symbol>();
    const queue = [...this.#homes.keys()];
    for (let symbol = queue.pop(); symbol !== undefined; symbol = queue.pop()) {
      for (const name of namesIn(declarationsOf(symbol))) {
        const named = this.#named(name);
        if (named === undefined || this.#homes.has(named) || found.has(named)) continue;
        if (!this.#isOurs(named)) continue;
        found.add(named);
        queue.push(named);
      }
    }
    const text = (symbol: ts.Symbol): string =>
      declarationsOf(symbol)
        .map((node) => node.getText())
        .join('\n');
    const sorted = [...found].sort((a, b) => compare(a.name, b.name) || compare(text(a), text(b)));
    const counts = new Map<string, number>();
    return sorted.map((symbol) => {
      const count = (counts.get(symbol.name) ?? 0) + 1;
      counts.set(symbol.name, count);
      return [count === 1 ? symbol.name : `${symbol.name}$${count}`, symbol];
    });
  }

  #declarations(symbol: ts.Symbol, name: string, scope: Scope): string[] {
    return declarationsOf(symbol).map((node) => {
      const plain = ts.isVariableDeclaration(node) ? asStatement(node) : node;
      const { transformed } = ts.transform(plain, [
        (context) => (root) => this.#normal(root, { name, scope, context }),
      ]);
      const [result = plain] = transformed;
      const text = this.#printer.printNode(ts.EmitHint.Unspecified, result, node.getSourceFile());
      return `export ${text}`;
    });
  }

  /** Without modifiers of a module, members sorted, names as they are seen from the entry. */
  #normal(
    root: ts.Node,
    { name, scope, context }: { name: string; scope: Scope; context: ts.TransformationContext },
  ): ts.Node {
    const { factory } = context;
    const visit = (node: ts.Node): ts.Node | undefined => {
      if (isModuleWord(node) || isPrivate(node)) return undefined;
      if (ts.isImportTypeNode(node) && node.qualifier !== undefined) {
        const label = factory.createIdentifier(this.#label(leftmost(node.qualifier), scope));
        const types = ts.visitNodes(node.typeArguments, visit, ts.isTypeNode);
        return factory.createTypeReferenceNode(label, types);
      }
      // What a function calls the parts of its options is its own matter.
      if (ts.isBindingName(node) && !ts.isIdentifier(node))
        return factory.createIdentifier('options');
      if (ts.isIdentifier(node)) {
        if (isNameOf(node, root)) return factory.createIdentifier(name);
        return isReference(node) ? factory.createIdentifier(this.#label(node, scope)) : node;
      }
      const deep = ts.visitEachChild(node, visit, context);
      if (ts.isInterfaceDeclaration(deep)) {
        const { modifiers, name, typeParameters, heritageClauses, members } = deep;
        return factory.updateInterfaceDeclaration(
          deep,
          modifiers,
          name,
          typeParameters,
          heritageClauses,
          sorted(members),
        );
      }
      if (ts.isClassDeclaration(deep)) {
        const { modifiers, name, typeParameters, heritageClauses, members } = deep;
        return factory.updateClassDeclaration(
          deep,
          modifiers,
          name,
          typeParameters,
          heritageClauses,
          sorted(members),
        );
      }
      if (ts.isTypeLiteralNode(deep)) {
        return factory.updateTypeLiteralNode(deep, factory.createNodeArray(sorted(deep.members)));
      }
      return deep;
    };
    return visit(root) ?? root;
  }

  /** How a name in a declaration is written in the text of an entry. */
  #label(node: ts.Identifier, scope: Scope): string {
    const named = this.#named(node);
    const home = named && this.#homes.get(named);
    const from = home ?? packageOf(this.#checker.getSymbolAtLocation(node));
    return from === undefined ? node.text : scope.nameOf(named, from);
  }

  #named(node: ts.Identifier): ts.Symbol | undefined {
    const symbol = this.#checker.getSymbolAtLocation(node);
    return symbol && this.#target(symbol);
  }

  #target(symbol: ts.Symbol): ts.Symbol {
    const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
    return isAlias ? this.#checker.getAliasedSymbol(symbol) : symbol;
  }

  /** A declaration of a module of ours: no type parameter, nothing of a package or of the language. */
  #isOurs(symbol: ts.Symbol): boolean {
    if ((symbol.flags & ts.SymbolFlags.TypeParameter) !== 0) return false;
    return declarationsOf(symbol).some(
      (node) =>
        !ts.isSourceFile(node) && (ts.isVariableDeclaration(node) || ts.isSourceFile(node.parent)),
    );
  }
}

/** The names of one text: what it exports, and what it has to import. */
class Scope {
  readonly #exported: ReadonlyMap<ts.Symbol, string>;
  readonly #taken: Set<string>;
  readonly #imports = new Map<string, Home & { readonly as: string }>();

  constructor(exports: ReadonlyMap<string, ts.Symbol>) {
    this.#exported = new Map([...exports].map(([name, symbol]) => [symbol, name]));
    this.#taken = new Set(exports.keys());
  }

  /** A name that is taken by something else gets a number. */
  nameOf(symbol: ts.Symbol | undefined, { entry, name }: Home): string {
    const exported = symbol && this.#exported.get(symbol);
    if (exported !== undefined) return exported;
    const key = `${entry} ${name}`;
    const known = this.#imports.get(key);
    if (known !== undefined) return known.as;
    let as = name;
    for (let count = 2; this.#taken.has(as); count += 1) as = `${name}$${count}`;
    this.#taken.add(as);
    this.#imports.set(key, { entry, name, as });
    return as;
  }

  imports(): string[] {
    const byEntry = new Map<string, string[]>();
    for (const { entry, name, as } of this.#imports.values()) {
      const names = byEntry.get(entry) ?? [];
      byEntry.set(entry, [...names, name === as ? name : `${name} as ${as}`]);
    }
    const lines = [...byEntry].map(
      ([entry, names]) => `import { ${names.sort(compare).join(', ')} } from '${entry}';`,
    );
    return lines.length === 0 ? [] : [lines.sort(compare).join('\n')];
  }
}

function declarationsOf(symbol: ts.Symbol): readonly ts.Declaration[] {
  return symbol.declarations ?? [];
}

/** The names in declarations that stand for something declared elsewhere. */
function* namesIn(roots: readonly ts.Node[]): Generator<ts.Identifier> {
  for (const node of roots) {
    if (isPrivate(node)) continue;
    if (ts.isImportTypeNode(node) && node.qualifier !== undefined) yield leftmost(node.qualifier);
    else if (ts.isIdentifier(node) && isReference(node)) yield node;
    const children: ts.Node[] = [];
    ts.forEachChild(node, (child) => void children.push(child));
    yield* namesIn(children);
  }
}

/** Where a type or a value is named: its first word, in `a.b.C` that is `a`. */
function isReference(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isTypeReferenceNode(parent) || ts.isExpressionWithTypeArguments(parent)) return true;
  if (ts.isTypeQueryNode(parent)) return true;
  if (ts.isComputedPropertyName(parent)) return true;
  return ts.isQualifiedName(parent) && parent.left === node;
}

function isNameOf(node: ts.Identifier, root: ts.Node): boolean {
  if (ts.isVariableStatement(root)) {
    return root.declarationList.declarations.some(({ name }) => name === node);
  }
  return (root as ts.NamedDeclaration).name === node;
}

/** `export`, `declare` and `default`: the same wherever a declaration stands. */
function isModuleWord({ kind }: ts.Node): boolean {
  return (
    kind === ts.SyntaxKind.ExportKeyword ||
    kind === ts.SyntaxKind.DeclareKeyword ||
    kind === ts.SyntaxKind.DefaultKeyword
  );
}

function isPrivate(node: ts.Node): boolean {
  if (!ts.isClassElement(node)) return false;
  if (node.name !== undefined && ts.isPrivateIdentifier(node.name)) return true;
  return (ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Private) !== 0;
}

function leftmost(name: ts.EntityName): ts.Identifier {
  return ts.isIdentifier(name) ? name : leftmost(name.left);
}

/** Where a name was imported from, if that is a package. */
function packageOf(symbol: ts.Symbol | undefined): Home | undefined {
  const specifier = symbol?.declarations?.find((node) => ts.isImportSpecifier(node));
  if (specifier === undefined) return undefined;
  const { moduleSpecifier } = specifier.parent.parent.parent as ts.ImportDeclaration;
  const { text } = moduleSpecifier as ts.StringLiteral;
  if (text.startsWith('.')) return undefined;
  return { entry: text, name: (specifier.propertyName ?? specifier.name).text };
}

/** One variable of a statement that may declare several. */
function asStatement(node: ts.VariableDeclaration): ts.Node {
  const list = node.parent as ts.VariableDeclarationList;
  return list.declarations.length === 1 ? list.parent : node;
}

/** By name; overloads and whatever has no name keep their order. */
function sorted<T extends ts.TypeElement | ts.ClassElement>(members: readonly T[]): readonly T[] {
  const key = ({ name, kind }: T): string => {
    if (name === undefined) return ` ${kind}`;
    return ts.isIdentifier(name) || ts.isStringLiteral(name) ? name.text : name.getText();
  };
  return [...members].sort((a, b) => compare(key(a), key(b)));
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
