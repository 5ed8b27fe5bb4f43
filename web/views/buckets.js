// buckets.js -- the view of the buckets that T5 and its variants use. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {controls, h, limited, minus, table} from '../ui.js';

const marked = [1, 5, 10, 50, 100];

/** Return the bucket of every offset up to `reach` on both sides of the query: {of(offset), reach, x: offsets, y: their
 * buckets, runs of offsets that share a bucket, exact: how many distances have a separate bucket, shared: the first
 * distance in the last bucket}. */
function bucketsOf(core, {buckets, max, bidirectional}, strategy) {
  const of = delta => core.bucket(delta, {buckets, maxDistance: max, bidirectional, strategy});
  const reach = Math.max(max + Math.ceil(max / 4), 12), x = [], y = [], runs = [];
  for (let delta = -reach; delta <= reach; delta++) x.push(delta), y.push(of(delta));
  x.forEach((delta, n) => {
    if (n && y[n] === y[n - 1]) runs.at(-1).last = delta;
    else runs.push({first: delta, last: delta, bucket: y[n]});
  });
  return {of, reach, x, y, runs, exact: core.bucketExact({buckets, bidirectional, strategy}), shared: -runs[0].last};
}

/** Return how the buckets grow beyond the exact ones, as a word. */
const growth = strategy => strategy === 'log' ? 'logarithmic' : strategy;

/** Return the zones of the chart from left to right; if not bidirectional, bucket 0 holds all keys after the query. */
function zonesOf({exact, reach}, {bidirectional, strategy}) {
  const edge = exact - 0.5, far = growth(strategy);
  return exact ?
    [
      {from: -reach, to: -edge, text: far}, {from: -edge, to: bidirectional ? edge : 0.5, text: 'exact'},
      bidirectional ? {from: edge, to: reach, text: far} : {from: 0.5, to: reach, text: 'one bucket'}
    ] :
    [];
}

function chartOf(found, state, change) {
  const {of, reach, x, y} = found, {buckets, max, bidirectional, strategy, offset} = state;
  return chart({
    title: `The bucket of every offset: ${strategy}, ${buckets} buckets, maximum distance ${max}${
      bidirectional ? '' : ', causal'}`,
    xLabel: 'offset = key − query',
    yLabel: 'bucket',
    low: 0,
    series: [{name: '', x, y, steps: true, style: x.length > 120 ? undefined : 'bars'}],
    zones: zonesOf(found, state),
    marks: [{x: Math.min(Math.max(offset, -reach), reach), text: minus(`${offset} → ${of(offset)}`)}],
    onpick: at => change({offset: Math.round(at)})
  });
}

/** Return the offsets of a run as words. */
const words = (run, reach) => minus(run.first === -reach ? `${run.last} and before` :
    run.last === reach ? `${run.first} and after` :
    run.first === run.last ? run.first :
                             `${run.first} to ${run.last}`);

/** Return which offsets share the bucket of the chosen one, and which buckets are exact, as sentences. */
function sentences({of, reach, runs, exact, shared}, {max, strategy, offset}) {
  const own = of(offset), same = runs.filter(run => run.bucket === own);
  return `Offset ${minus(offset)} falls in bucket ${own}, with the offsets ${
    same.map(run => words(run, reach)).join(', ')}. ${
    exact ? `${exact > 1 ? `Each distance from 0 to ${exact - 1}` : 'Distance 0'} has a separate bucket;${
              shared > exact ? ` from ${exact} the spacing is ${growth(strategy)}, and` :
                               ''} distances of ${shared} and more share the last bucket.` :
            `No distances are exact: the buckets divide ${max} distances evenly, and distances of ${
              shared} and more share the last bucket.`}`;
}

function tablesOf({of, reach, runs}, offset) {
  const endless = run => run.first === -reach || run.last === reach;
  return [
    h('h3', {}, 'Marked distances'),
    table(['distance', ...marked.map(String)],
      [
        ['before the query', ...marked.map(d => String(of(-d)))], ['after the query', ...marked.map(d => String(of(d)))]
      ]),
    h('h3', {}, 'Every run of offsets'),
    table(['bucket', 'offsets', 'number'],
      runs.map(
        run => [String(run.bucket), words(run, reach), endless(run) ? 'no limit' : String(run.last - run.first + 1)]),
      {mark: r => runs[r].bucket === of(offset) ? 'mark' : ''})
  ];
}

function codeOf({buckets, max, bidirectional, strategy, offset}, offsets, reach) {
  const options = [
    '--buckets', buckets, '--max-distance', max, bidirectional ? null : '--causal',
    ...(strategy === 'log' ? [] : ['--strategy', strategy])
  ];
  return {
    CLI: `${shell(['relpos', 'bucket', ...options, '--',
      ...offsets])}\n${shell(['relpos', 'bucket', ...options, '--', offset])}\n`,
    Python: `import relpos\nprint(relpos.bucket([${[...offsets, offset].join(', ')}], buckets=${
      buckets}, max_distance=${max}, bidirectional=${bidirectional ? 'True' : 'False'}, strategy="${strategy}"))\n`,
    C: `#include <relpos/relpos.h>\n#include <stdio.h>\n\nint main(void)\n{\n    for (int delta = -${reach}; delta <= ${
      reach}; delta++)\n        printf("%d %lld\\n", delta, (long long)rp_bucket(delta, ${buckets}, ${max}, ${
      bidirectional ? 1 : 0}, RP_STRATEGY_${strategy.toUpperCase()}));\n    return 0;\n}\n`,
  };
}

export const buckets = {
  id: 'buckets',
  title: 'Buckets: which offsets share an entry',
  name: 'Buckets',
  terms: ['t5', 'bucket'],  // for these terms, the view of biases has a link to this view
  defaults: {buckets: 32, max: 128, bidirectional: true, strategy: 'log', offset: -10},

  make({core, facts, change}) {
    const strategies = facts.terms.bucket.parameters.find(p => p.key === 'strategy').choices;
    const settings = controls(
      [
        {key: 'buckets', label: 'Number of buckets', type: 'range', min: 4, max: 64, step: 2, lower: 2, upper: 4096},
        {
          key: 'max',
          label: 'Maximum distance',
          type: 'range',
          min: 1,
          max: 512,
          lower: 1,
          upper: 65536,
          limit: ({strategy, ...of}) => [1 + core.bucketExact({...of, strategy: strategies.indexOf(strategy)}), 65536]
        },
        {key: 'bidirectional', label: 'bidirectional: half of the buckets for keys after the query', type: 'check'},
        {key: 'strategy', label: 'Strategy', type: 'select', options: strategies},
        {key: 'offset', label: 'Offset, key − query', type: 'range', min: -160, max: 160, lower: -1e9, upper: 1e9},
      ],
      change);
    const picture = h('div'), said = h('p', {role: 'status'}), tables = h('div');
    const output = h('div', {}, picture, said, tables);

    const compute = given => {
      const state = {...given, max: limited(settings.specs[1], given)}, {strategy, offset} = state;
      settings.set(state);
      const found = bucketsOf(core, state, strategies.indexOf(strategy)), {of, x, y, runs, exact} = found;
      const figure = chartOf(found, state, change);
      picture.replaceChildren(figure);
      said.textContent = sentences(found, state);
      tables.replaceChildren(...tablesOf(found, offset));
      const offsets = [...marked.map(d => -d).reverse(), 0, ...marked];
      return {
        name: 'buckets',
        figure: ofChart(figure),
        csv: () => [['offset', 'bucket'], ...x.map((delta, n) => [delta, y[n]])],
        docs: [strategy === 'log' ? 't5' : 'bucket'],
        numbers: {exact, marked: offsets.map(delta => [delta, of(delta)]), offset: of(offset), runs},
        code: codeOf(state, offsets, found.reach)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      about:
        'A table of biases has one entry for each bucket, shared by all offsets in the bucket. Each small offset ' +
        'has a separate bucket, and large offsets share buckets; the lines in the chart mark the boundary. Move the ' +
        'offset, or click the chart, to see which offsets share its bucket.',
      formula: 'bias = table[bucket(r), h]      r = key − query'
    });
  },
};
