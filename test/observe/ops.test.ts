/** What lies in ops/ speaks of metrics and labels that exist, in PromQL that computes something. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { anchorsOf, linksOf, ROOT, readPage, tableUnder, wordOf } from '../docs/pages.ts';
import { knownMetrics } from './known-metrics.ts';
import { type Judgement, judge, type KnownMetric } from './promql.ts';

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly Target[];
}

interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat: string;
  readonly datasource: { readonly uid: string };
}

interface Dashboard {
  readonly __inputs: readonly { readonly name: string; readonly pluginId: string }[];
  readonly __requires: readonly { readonly type: string; readonly id: string }[];
  readonly id: null;
  readonly schemaVersion: number;
  readonly templating: {
    readonly list: readonly {
      readonly name: string;
      readonly definition: string;
      readonly query: { readonly query: string };
    }[];
  };
  readonly panels: readonly Panel[];
}

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

interface ScrapeFile {
  readonly rule_files: readonly string[];
  readonly scrape_configs: readonly {
    readonly job_name: string;
    readonly metrics_path: string;
  }[];
}

/** Families that no panel shows, and why. */
const NOT_SHOWN: Readonly<Record<string, string>> = {
  respool_engine_settled_total: 'respool_attempts_total has its attempts, by topic and outcome',
};

const RULE_KEYS = ['alert', 'expr', 'for', 'labels', 'annotations'];

const known = await knownMetrics();
const dashboard = JSON.parse(textOf('ops/grafana-dashboard.json')) as Dashboard;
const rules = (parse(textOf('ops/prometheus-alerts.yml')) as RuleFile).groups.flatMap(
  (group) => group.rules,
);
const panels = dashboard.panels.filter(({ type }) => type !== 'row');
const targets = panels.flatMap(({ title, targets: own = [] }) =>
  own.map((target) => ({ title, ...target })),
);

describe('the dashboard', () => {
  test('asks only for metrics and labels that exist', () => {
    expect(targets.flatMap(({ expr }) => judged(expr).problems)).toEqual([]);
    expect(targets.length).toBeGreaterThan(50);
  });

  test('fills its variables from metrics and labels that exist, and uses each of them', () => {
    const variables = dashboard.templating.list;
    expect(variables.map(({ name }) => name)).toEqual(['job', 'source', 'topic', 'queue']);
    for (const { name, definition, query } of variables) {
      expect(query.query).toBe(definition);
      const [, selector = '', label = ''] = /^label_values\((.+), (\w+)\)$/.exec(definition) ?? [];
      const { problems, labels } = judge(selector, known, { isSelector: true });
      expect(problems).toEqual([]);
      expect(labels).toContain(label);
      expect(targets.some(({ expr }) => expr.includes(`"$${name}"`))).toBe(true);
    }
  });

  test('names in legends only labels that are there', () => {
    const wrong = targets.flatMap(({ title, expr, legendFormat }) => {
      const { labels = new Set() } = judged(expr);
      const named = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
      return named.filter((label) => !labels.has(label)).map((label) => `${title}: ${label}`);
    });
    expect(wrong).toEqual([]);
  });

  test('gives every panel a title, a description, a unit and a legend', () => {
    const bare = panels.filter(
      ({ title, description = '', fieldConfig, targets: own = [] }) =>
        title === '' ||
        !description.endsWith('.') ||
        (fieldConfig?.defaults.unit ?? '') === '' ||
        own.length === 0 ||
        own.some(({ legendFormat }) => legendFormat === ''),
    );
    expect(bare.map(({ title }) => title)).toEqual([]);
  });

  test('has ids of its own for panels and queries, and titles that tell panels apart', () => {
    const { panels: all } = dashboard;
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
    for (const { targets: own = [] } of panels) {
      expect(new Set(own.map(({ refId }) => refId)).size).toBe(own.length);
    }
  });

  test('lays its panels side by side, within the 24 columns', () => {
    const cells = new Map<string, string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(cells.get(`${x} ${y}`), title).toBeUndefined();
          cells.set(`${x} ${y}`, title);
        }
      }
    }
  });

  test('asks at import which Prometheus it is to read, and reads no other', () => {
    expect(dashboard).toMatchObject({ id: null, schemaVersion: 39 });
    const { __inputs: inputs, __requires: requires } = dashboard;
    expect(inputs).toMatchObject([{ name: 'DS_PROMETHEUS', pluginId: 'prometheus' }]);
    const uids = [...panels, ...targets].map(({ datasource }) => datasource?.uid);
    expect([...new Set(uids)]).toEqual(['${DS_PROMETHEUS}']);
    const required = requires.filter(({ type }) => type === 'panel');
    const types = new Set(panels.map(({ type }) => type));
    expect(required.map(({ id }) => id).toSorted()).toEqual([...types].toSorted());
  });

  test('shows every family, but for those that are named with a reason', () => {
    const shown = new Set(targets.flatMap(({ expr }) => [...judged(expr).families]));
    const ours = [...known.keys()].filter((name) => name.startsWith('respool_'));
    expect(ours.length).toBeGreaterThan(60);
    const missing = ours.filter((name) => !shown.has(name));
    expect(missing.toSorted()).toEqual(Object.keys(NOT_SHOWN).toSorted());
  });
});

describe('the alert rules', () => {
  test('ask only for metrics and labels that exist', () => {
    expect(rules.flatMap(({ expr }) => judged(expr).problems)).toEqual([]);
    expect(rules.length).toBeGreaterThan(20);
  });

  test('have names of their own, a severity, and say what is and what to do', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const rule of rules) {
      const { alert, for: span, labels, annotations } = rule;
      // Prometheus refuses a file with any other key.
      const others = Object.keys(rule).filter((key) => !RULE_KEYS.includes(key));
      expect(others, alert).toEqual([]);
      expect(alert).toMatch(/^Respool[A-Z]\w+$/);
      expect(span ?? '0m', alert).toMatch(/^\d+[smh]$/);
      expect(['critical', 'warning', 'info'], alert).toContain(labels.severity);
      expect(Object.keys(annotations).toSorted()).toEqual(['description', 'runbook', 'summary']);
    }
  });

  test('name in their texts only labels that are there', () => {
    const wrong = rules.flatMap(({ alert, expr, annotations }) => {
      const { labels = new Set() } = judged(expr);
      const text = Object.values(annotations).join('\n');
      const named = [...text.matchAll(/\$labels\.(\w+)/g)].map(([, label = '']) => label);
      return named.filter((label) => !labels.has(label)).map((label) => `${alert}: ${label}`);
    });
    expect(wrong).toEqual([]);
  });

  test('lead to a page, and to a heading of it', () => {
    for (const { alert, annotations } of rules) {
      const [file = '', anchor = ''] = (annotations.runbook ?? '').split('#');
      expect(file, alert).toMatch(/^docs\/operations\/[\w-]+\.md$/);
      expect(existsSync(path.join(ROOT, file)), file).toBe(true);
      if (anchor !== '') expect(anchorsOf(readPage(file)), alert).toContain(anchor);
    }
  });

  test('stand in the page of what to watch, each with its page', () => {
    const page = readPage('docs/operations/watch-it.md');
    for (const { alert, annotations } of rules) {
      const row = page.text.split('\n').find((line) => line.includes(`| \`${alert}\` |`));
      expect(row, alert).toBeDefined();
      const target = path.posix.relative('docs/operations', annotations.runbook ?? '');
      const links = linksOf({ ...page, text: row ?? '' });
      expect(links, alert).toContain(target.replace(/^watch-it\.md(?=#)/, ''));
    }
  });
});

test('the example of a scrape loads the rules, asks where metrics are, and names jobs as rules do', () => {
  const example = parse(textOf('ops/prometheus.yml')) as ScrapeFile;
  for (const file of example.rule_files)
    expect(existsSync(path.join(ROOT, 'ops', file))).toBe(true);
  for (const { metrics_path } of example.scrape_configs) expect(metrics_path).toBe('/metrics');
  const jobs = example.scrape_configs.map(({ job_name }) => job_name);
  const asked = rules.flatMap(({ expr }) => [...expr.matchAll(/job=~"([^"]+)"/g)]);
  expect(asked.length).toBeGreaterThan(0);
  for (const [, pattern = ''] of asked) {
    expect(jobs.some((job) => new RegExp(`^(?:${pattern})$`).test(job))).toBe(true);
  }
});

test.each(['docs/how-to/metrics.md', 'docs/how-to/metrics-of-rabbitmq-and-outbox.md'])(
  'the questions in the page %s ask for what exists',
  (page) => {
    const rows = tableUnder(readPage(page), 'What to ask');
    expect(rows.length).toBeGreaterThan(2);
    expect(rows.flatMap(([, cell]) => judged(wordOf(cell)).problems)).toEqual([]);
  },
);

describe('an expression', () => {
  const metrics: readonly KnownMetric[] = [
    { name: 'told_total', type: 'counter', labels: ['topic'] },
    { name: 'depth', type: 'gauge', labels: ['topic', 'state'] },
    { name: 'took_seconds', type: 'histogram', labels: ['topic'] },
  ];
  const some = new Map(metrics.map((metric) => [metric.name, metric]));

  test.each([
    ['sum by (topic) (rate(told_total[5m])', 'syntax error'],
    ['told_totals', 'no metric "told_totals"'],
    ['took_seconds', 'no metric "took_seconds"'],
    ['depth{queue="a"}', '"depth" has no label "queue"'],
    ['sum by (queue) (depth)', 'no label "queue" here'],
    ['sum without (queue) (depth)', 'no label "queue" here'],
    ['sum by (state) (max by (topic) (depth))', 'no label "state" here'],
    ['sum by (topic) (told_total) > 5', '"told_total" has no rate'],
    ['rate(depth[5m])', '"depth" is a gauge'],
    ['rate(sum(told_total)[5m:1m])', '"told_total" has no rate'],
    ['sum by (topic) (depth) / sum by (state) (depth)', 'never match'],
    ['depth / on (queue) depth', 'no label "queue" here'],
    ['histogram_quantile(0.9, rate(took_seconds_sum[5m]))', 'no label "le" here'],
    ['label_replace(depth, "a", "$1", "topic", "(.*)")', 'not known to this test'],
  ])('%s is found wrong: %s', (expression, problem) => {
    expect(judge(expression, some).problems.join('\n')).toContain(problem);
  });

  test.each([
    ['sum by (topic) (rate(told_total{topic=~"$topic"}[5m])) > 0.5'],
    ['sum by (topic) (rate(told_total[5m])) / sum by (topic) (depth offset 1h)'],
    ['depth * on (topic) group_left () max by (topic) (depth)'],
    ['histogram_quantile(0.9, sum by (topic, le) (rate(took_seconds_bucket[5m])))'],
    ['time() - max by (job, instance) (depth) > 60'],
    ['absent(depth)'],
  ])('%s is found right', (expression) => {
    expect(judge(expression, some).problems).toEqual([]);
  });
});

/** As Prometheus sees it, when Grafana has put in what it knows. */
function judged(expression: string): Judgement {
  return judge(expression.replaceAll('$__rate_interval', '5m'), known);
}

function textOf(file: string): string {
  return readFileSync(path.join(ROOT, file), 'utf8');
}
