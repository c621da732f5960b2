/**
 * trace — which functions of the source run, and in which order.
 *
 * A load hook inserts a call at the start of every function, getter, arrow function and instance
 * initialiser under src/. It counts what V8's precise coverage counts, with one difference: a
 * resumption of an async function is no call.
 */

import { registerHooks } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** A function that ran between `begin` and `end`. */
export interface Step {
  /** Its file, relative to the root of the repository. */
  readonly file: string;
  readonly name: string;
  readonly line: number;
  readonly calls: number;
}

type Place = Omit<Step, 'calls'>;

const places: Place[] = [];
/** Calls by number of the function, in the order of the first call. */
let calls = new Map<number, number>();
let isOn = false;

declare global {
  /** Notes that a function of the source began. */
  var walkStep: (at: number) => void;
}

/** Traces every module of src/ that is loaded from now on. */
export function traceSource(root: string): void {
  const source = path.join(path.resolve(root), 'src');
  globalThis.walkStep = (at) => {
    if (isOn) calls.set(at, (calls.get(at) ?? 0) + 1);
  };
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (!url.startsWith('file:') || !url.endsWith('.ts')) return loaded;
      const file = fileURLToPath(url);
      if (!file.startsWith(source + path.sep) || loaded.source === undefined) return loaded;
      const text =
        typeof loaded.source === 'string'
          ? loaded.source
          : Buffer.from(loaded.source as Uint8Array).toString();
      return { ...loaded, source: traced(text, path.relative(path.dirname(source), file)) };
    },
  });
}

/** Forgets what ran before. */
export function begin(): void {
  calls = new Map();
  isOn = true;
}

/** The functions that ran since `begin`, in the order of their first call. */
export function end(): Step[] {
  isOn = false;
  const steps: Step[] = [];
  for (const [at, count] of calls) {
    const place = places[at];
    if (place !== undefined) steps.push({ ...place, calls: count });
  }
  return steps;
}

/** The text of a module with a call at the start of each function. */
function traced(text: string, file: string): string {
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const inserts: { readonly at: number; readonly text: string }[] = [];
  const place = (node: ts.Node, name: string): number => {
    const { line } = tree.getLineAndCharacterOfPosition(node.getStart(tree));
    return places.push({ file, name, line: line + 1 }) - 1;
  };
  const visit = (node: ts.Node): void => {
    if (ts.isClassLike(node) && node.members.some(hasInitialiser)) {
      const at = place(node, `${node.name?.text ?? 'class'} (fields)`);
      inserts.push({ at: node.members.pos, text: ` #walkStep = walkStep(${at});` });
    } else if (ts.isFunctionLike(node) && 'body' in node && node.body !== undefined) {
      const { body } = node;
      const at = place(node, nameOf(node));
      if (ts.isBlock(body)) {
        inserts.push({ at: body.statements.pos, text: ` walkStep(${at});` });
      } else {
        inserts.push({ at: body.getStart(tree), text: `(walkStep(${at}), ` });
        inserts.push({ at: body.end, text: ')' });
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  let result = '';
  let from = 0;
  // A stable sort: of two insertions at one place, the outer function comes first.
  for (const insert of inserts.sort((one, other) => one.at - other.at)) {
    result += text.slice(from, insert.at) + insert.text;
    from = insert.at;
  }
  return result + text.slice(from);
}

function hasInitialiser(member: ts.ClassElement): boolean {
  if (!ts.isPropertyDeclaration(member)) return false;
  return !ts.getModifiers(member)?.some(({ kind }) => kind === ts.SyntaxKind.StaticKeyword);
}

/** As a reader looks for it: `Class.method`, the name of a function, or where a callback is. */
function nameOf(node: ts.Node): string {
  if (ts.isConstructorDeclaration(node)) return `new ${classOf(node)}`;
  const own = (node as { readonly name?: ts.Node }).name?.getText();
  if (own !== undefined) {
    const of = classOf(node);
    return of === '' ? own : `${of}.${own}`;
  }
  const { parent } = node;
  if (ts.isVariableDeclaration(parent) || ts.isPropertyDeclaration(parent)) {
    return parent.name.getText();
  }
  if (ts.isPropertyAssignment(parent)) return parent.name.getText();
  let outer: ts.Node | undefined = parent;
  while (outer !== undefined && !ts.isFunctionLike(outer)) outer = outer.parent;
  return outer === undefined
    ? 'callback'
    : `callback of ${nameOf(outer).replace(/^callback of /, '')}`;
}

function classOf(node: ts.Node): string {
  return ts.isClassLike(node.parent) ? (node.parent.name?.text ?? 'class') : '';
}
