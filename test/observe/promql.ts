/**
 * promql — reads an expression of PromQL and says what is wrong with it, given the metrics that
 * exist.
 *
 * Pure. ops.test.ts has it judge every expression in ops/. It knows the part of the language that
 * ops/ uses; a function that it has not learned is a problem too, and not a silent pass.
 *
 * What it finds, besides errors of syntax: metrics and labels that do not exist, a label that an
 * aggregation has already taken away, two sides that can never match, a rate over a gauge, and a
 * counter without one.
 */
import { parser } from '@prometheus-io/lezer-promql';

/** A metric as the registry has it. */
export interface KnownMetric {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  readonly labels: readonly string[];
}

/** What an expression is found to be. */
export interface Judgement {
  readonly problems: readonly string[];
  /** The labels of its result; undefined for a scalar. */
  readonly labels: ReadonlySet<string> | undefined;
  /** The families it reads, without the suffixes of histograms. */
  readonly families: ReadonlySet<string>;
}

/** Labels that Prometheus gives to everything it scrapes. */
const SCRAPED = ['instance', 'job'];
const RATES = new Set(['Rate', 'Irate', 'Increase']);
/** Functions that leave labels as they are, and what they are of. */
const KEEPING = new Set([...RATES, 'Delta', 'Deriv', 'AvgOverTime', 'MaxOverTime', 'MinOverTime']);
const AROUND_A_RANGE = new Set(['MatrixSelector', 'OffsetExpr', 'ParenExpr', 'FunctionCallBody']);
const SET_OPERATORS = new Set(['And', 'Or', 'Unless']);

type Tree = ReturnType<typeof parser.parse>;
type Node = Tree['topNode'];
type Labels = ReadonlySet<string> | undefined;

/** Judges one expression. With `isSelector`, a bare counter is right: nothing is computed of it. */
export function judge(
  expression: string,
  known: ReadonlyMap<string, KnownMetric>,
  { isSelector = false } = {},
): Judgement {
  const problems: string[] = [];
  const families = new Set<string>();
  const { topNode } = parser.parse(expression);
  const textOf = ({ from, to }: Node) => expression.slice(from, to);
  const broken = nodesOf(topNode).filter(({ type }) => type.isError);
  if (broken.length > 0) {
    const places = broken.map(({ from }) => `syntax error at ${from}: ${expression.slice(from)}`);
    return { problems: places, labels: undefined, families };
  }
  const say = (problem: string) => void problems.push(`${problem} in: ${expression}`);
  const reading: Reading = { known, families, say, textOf, isSelector };
  const [expr] = childrenOf(topNode);
  const labels = expr === undefined ? undefined : labelsOf(expr, reading);
  return { problems, labels, families };
}

interface Reading {
  readonly known: ReadonlyMap<string, KnownMetric>;
  readonly families: Set<string>;
  readonly say: (problem: string) => void;
  readonly textOf: (node: Node) => string;
  readonly isSelector: boolean;
}

function labelsOf(node: Node, reading: Reading): Labels {
  switch (node.name) {
    case 'VectorSelector':
      return selectorLabels(node, reading);
    case 'AggregateExpr':
      return aggregateLabels(node, reading);
    case 'BinaryExpr':
      return binaryLabels(node, reading);
    case 'FunctionCall':
      return functionLabels(node, reading);
    case 'NumberDurationLiteral':
      return undefined;
    case 'ParenExpr':
    case 'MatrixSelector':
    case 'SubqueryExpr':
    case 'OffsetExpr': {
      const [inner] = childrenOf(node);
      return inner === undefined ? undefined : labelsOf(inner, reading);
    }
    default:
      reading.say(`${node.name} is not known to this test`);
      return undefined;
  }
}

function selectorLabels(node: Node, { known, families, say, textOf, ...rest }: Reading): Labels {
  const identifier = node.getChild('Identifier');
  const name = identifier === null ? '' : textOf(identifier);
  const metric = seriesOf(name, known);
  if (metric === undefined) {
    say(`there is no metric "${name}"`);
    return new Set();
  }
  families.add(metric.family);
  const labels = new Set([...metric.labels, ...SCRAPED]);
  const matchers = node.getChild('LabelMatchers')?.getChildren('UnquotedLabelMatcher') ?? [];
  for (const matcher of matchers) {
    const label = matcher.getChild('LabelName');
    if (label !== null && !labels.has(textOf(label))) {
      say(`"${name}" has no label "${textOf(label)}"`);
    }
  }
  const rated = isRated(node);
  if (metric.isCounter && !rated && !rest.isSelector) say(`the counter "${name}" has no rate`);
  if (!metric.isCounter && rated) say(`"${name}" is a gauge and has a rate`);
  return labels;
}

/** Whether the range around a selector is what a rate is of; a rate of a sum is none. */
function isRated(selector: Node): boolean {
  let node = selector.parent;
  while (node !== null && AROUND_A_RANGE.has(node.name)) node = node.parent;
  const name = node?.getChild('FunctionIdentifier')?.firstChild?.name ?? '';
  return RATES.has(name);
}

/** The series of a name: of a histogram there are only `_bucket`, `_sum` and `_count`. */
function seriesOf(name: string, known: ReadonlyMap<string, KnownMetric>) {
  const plain = known.get(name);
  if (plain?.type === 'counter' || plain?.type === 'gauge') {
    return { family: name, labels: plain.labels, isCounter: plain.type === 'counter' };
  }
  const [, family = '', suffix = ''] = /^(.+)_(bucket|sum|count)$/.exec(name) ?? [];
  const parts = known.get(family);
  const hasBuckets = parts?.type === 'histogram';
  if (parts === undefined || (!hasBuckets && parts.type !== 'summary')) return undefined;
  if (suffix === 'bucket' && !hasBuckets) return undefined;
  const labels = suffix === 'bucket' ? [...parts.labels, 'le'] : parts.labels;
  return { family, labels, isCounter: true };
}

function aggregateLabels(node: Node, reading: Reading): Labels {
  const body = node.getChild('FunctionCallBody');
  const inner = body === null ? undefined : operandsOf(body).at(-1);
  const labels = (inner === undefined ? undefined : labelsOf(inner, reading)) ?? new Set<string>();
  const modifier = node.getChild('AggregateModifier');
  const named = modifier === null ? [] : groupingOf(modifier, reading);
  checkThere(named, labels, reading);
  // These choose among series and change none.
  const operator = node.getChild('AggregateOp')?.firstChild?.name ?? '';
  if (operator === 'Topk' || operator === 'Bottomk') return labels;
  if ((modifier?.getChild('Without') ?? null) !== null) return minus(labels, named);
  return new Set(named);
}

function binaryLabels(node: Node, reading: Reading): Labels {
  const sides = operandsOf(node);
  const [left, right] = sides.map((side) => labelsOf(side, reading));
  if (left === undefined || right === undefined) return left ?? right;
  const operator = childrenOf(node)[1]?.name ?? '';
  const matching = node.getChild('MatchingModifierClause');
  const named = matching === null ? [] : groupingOf(matching, reading);
  if (matching !== null && matching.getChild('On') !== null) {
    checkThere(named, left, reading);
    checkThere(named, right, reading);
    if (SET_OPERATORS.has(operator)) return left;
    return matching.getChild('GroupLeft') === null ? new Set(named) : left;
  }
  const [one, other] = [left, right].map((side) => [...minus(side, named)].toSorted().join());
  if (one !== other) {
    const texts = [left, right].map((side) => `{${[...side].join(', ')}}`);
    reading.say(`the sides of "${operator}" never match: ${texts.join(' and ')}`);
  }
  return left;
}

function functionLabels(node: Node, reading: Reading): Labels {
  const name = node.getChild('FunctionIdentifier')?.firstChild?.name ?? '';
  const body = node.getChild('FunctionCallBody');
  const given = body === null ? [] : operandsOf(body);
  const labels = given.map((one) => labelsOf(one, reading)).find((one) => one !== undefined);
  if (name === 'Time') return undefined;
  if (name === 'Absent') return new Set();
  if (name === 'HistogramQuantile') {
    checkThere(['le'], labels ?? new Set(), reading);
    return labels === undefined ? undefined : minus(labels, ['le']);
  }
  if (!KEEPING.has(name)) reading.say(`the function ${name} is not known to this test`);
  return labels;
}

function checkThere(named: readonly string[], labels: ReadonlySet<string>, reading: Reading) {
  for (const one of named) if (!labels.has(one)) reading.say(`there is no label "${one}" here`);
}

function minus(labels: ReadonlySet<string>, taken: readonly string[]): ReadonlySet<string> {
  return new Set([...labels].filter((label) => !taken.includes(label)));
}

function groupingOf(node: Node, { textOf }: Reading): string[] {
  const names = node.getChild('GroupingLabels')?.getChildren('LabelName') ?? [];
  return names.map(textOf);
}

function operandsOf(node: Node): Node[] {
  return childrenOf(node).filter(({ type }) => type.is('Expr'));
}

function childrenOf(node: Node): Node[] {
  const found: Node[] = [];
  for (let child = node.firstChild; child !== null; child = child.nextSibling) found.push(child);
  return found;
}

function nodesOf(node: Node): Node[] {
  return [node, ...childrenOf(node).flatMap(nodesOf)];
}
