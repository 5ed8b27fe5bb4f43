// beyond.js -- the last step: how each scheme behaves at distances that do not occur in training. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {shell} from '../code.js';
import {controls, fixed, h, viewLink} from '../ui.js';

import {i, math, n, o} from './mathml.js';
import {paper, player, roomy, step, widthOf} from './step.js';
import {trainedTable} from './tables.js';

const trained = 512, min = 64, max = 8192, points = 1024;

export const beyond = {
  id: 'story-beyond',
  title: 'Longer than anything in training',
  name: 'Beyond training',
  defaults: {length: 2048},
  make({core, facts, change, state, story}) {
    const settings =
      controls([{key: 'length', label: 'Length of the text', type: 'range', min, max, lower: min, upper: max}], change);
    const box = h('div', {class: 'four'}), width = 8, one = new Float64Array(width);
    one[width / 2 - 1] = 1;  // use only the slowest pair of channels
    const asked = core.words(['told']).q;
    core.problem(
      {lenQ: 1, lenK: 1, dimK: width, terms: [`relkey,left=${trained - 1},right=0`], q: asked, k: new Float64Array(width)});
    const vectors = core.filled(0, 0), table = trainedTable(core, facts, 0);
    const head = 1, slope = 7;
    const schemes = [
      {name: 'ALiBi: the line goes on', terms: ['alibi'], heads: 8, head: slope, what: 'bias', y: 'bias', low: -8, colour: 0},
      {name: 'T5: the last bucket', terms: [table], heads: 4, head, what: 'bias', y: 'bias', colour: 2}, {
        name: 'Shaw: the last vector',
        terms: [{text: `relkey,left=${trained - 1},right=0`, arrays: {table: vectors}}],
        q: asked,
        what: 'scores',
        y: 'score',
        colour: 3
      },
      {
        name: 'RoPE: new angles',
        terms: [`rope,dim=${width}`],
        q: one,
        same: true,
        what: 'scores',
        y: 'score',
        low: -1 / Math.sqrt(width),
        high: 1 / Math.sqrt(width),
        colour: 1
      }
    ];
    /** Return the bias or score at each distance in a text of this length, and the weights of its last word if only the scheme matters. */
    const of = ({terms, heads = 1, head = 0, q, same, what}, length) => {
      const k = q && new Float64Array(length * width);
      if (same)
        for (let n = 0; n < length; n++) k.set(q, n * width);
      core.problem({heads, lenQ: 1, lenK: length, qOffset: length - 1, dimK: q ? width : 1, terms, q, k});
      return {values: core.rows(what, head).reverse(), weights: core.rows('weights', head).reverse()};
    };
    return step(this, {
      story,
      settings,
      state,
      figure: box,
      extra: [player({
        key: 'length',
        state,
        change,
        text: 'Play: 64 to 8,192',
        next: (() => {
          let exact = 0;
          return (value, ms) => {
            if (Math.round(exact) !== value) exact = value;
            exact = value >= max ? min : Math.min(exact * 2 ** (ms / 1000), max);
            return Math.round(exact);
          };
        })()
      })],
      lead: `Suppose that no training text had more than ${
        trained} tokens: the shaded part. Press Play to see each scheme at longer distances.`,
      text: [
        'ALiBi keeps falling, so far words get almost no weight. T5 and Shaw repeat their last number for more and more words. RoPE’s slow dials reach angles that did not occur in training, so models for long texts stretch their wavelengths.'
      ],
      formula: math(i('δ'), o('='), i('j'), o('−'), i('i'), o('<'), o('−'), n(String(trained))),
      papers: [paper('Chen et al. 2023, Position interpolation', '2306.15595'), paper('Peng et al. 2023, YaRN', '2309.00071')],
      workshop: viewLink({id: 'rope'}, 'stretch RoPE’s wavelengths'),
      notes: [
        'ALiBi is the last of eight heads. T5 is a trained table: layer 1, head 2 of the laboratory’s byte model. Shaw’s vectors are random, with one query. RoPE shows only the slowest pair of eight channels, with base 10,000.',
        'The percentage is the part of the last word’s weight beyond the trained length, if all keys are equal except for their position.'
      ],
      compute(state) {
        const {length} = state, two = roomy(box), room = widthOf(box), width = two ? Math.floor((room - 24) / 2) : room;
        settings.set(state);
        const x = Array.from({length}, (_, back) => back), found = schemes.map(scheme => of(scheme, length));
        const fractions = found.map(({weights}) => weights.subarray(Math.min(trained, length)).reduce((sum, w) => sum + w, 0));
        const every = Math.max(1, Math.floor(length / points)),
              kept = x.filter(n => n < trained || n % every === 0 || n === length - 1);
        box.replaceChildren(...schemes.map((scheme, n) => chart({
          title: scheme.name + (length > trained ? `; ${Math.round(100 * fractions[n])} % beyond` : ''),
          xLabel: (two ? n > 1 : n === 3) ? 'how far back' : '',
          yLabel: scheme.y,
          width,
          height: two ? 260 : 104,
          low: scheme.low && Math.min(scheme.low, ...found[n].values.subarray(-1)),
          high: scheme.high,
          series: [{name: '', x: kept, y: kept.map(back => found[n].values[back]), colour: scheme.colour}],
          zones: [{from: 0, to: Math.min(trained, length) - 0.5, shade: true}]
        })));
        return {
          said: length > trained ?
            [
              h('strong', {}, `${length.toLocaleString('en')} tokens`),
              `: ${
                Math.round(100 *
                  (1 - trained / length))} % of all distances are new. The titles show how much of the attention goes to them.`
            ] :
            [h('strong', {}, `${length.toLocaleString('en')} tokens`), ': every distance occurred in training.'],
          numbers: {fractions},
          csv: () => [['back', ...schemes.map(({name}) => name.split(':')[0])],
            ...x.map(back => [back, ...found.map(({values}) => values[back])])],
          code: {
            CLI: shell([
              'relpos', 'bias', 'alibi', '--heads', 8, '--head', slope, '--q', 1, '--k', length, '--q-offset', length - 1,
              '--json'
            ])
          }
        };
      }
    });
  }
};
