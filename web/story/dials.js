// dials.js -- the step of RoPE: pairs of channels as dials, which turn with the position and keep their angle. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, shell} from '../code.js';
import {dial} from '../dial.js';
import {controls, fixed, h, minus, viewLink} from '../ui.js';

import {i, math, o, row, sub, sup} from './mathml.js';
import {paper, player, roomy, step, walk, widthOf} from './step.js';

const most = 200, reach = 64;

export const dials = {
  id: 'story-dials',
  title: 'RoPE: positions turn dials',
  name: 'RoPE’s dials',
  defaults: {at: 30, back: 6, base: 100},
  make({core, change, state, story}) {
    const settings = controls(
      [
        {key: 'at', label: 'Where both words stand', type: 'range', min: 0, max: most, lower: 0, upper: 100000},
        {key: 'back', label: 'How far apart they are', type: 'range', min: 0, max: reach, lower: 0, upper: reach}, {
          key: 'base',
          label: 'Base: how slow the last dials are',
          type: 'select',
          options: [['100', '100'], ['10000', '10,000, as in Llama 2']]
        }
      ],
      change);
    const planes = h('div', {class: 'dials'}), box = h('div', {class: 'drag'});
    const {q: of, k: also, width} = core.words(['loved', 'him']), q = of.slice(0, width), k = also.slice(width),
                           pairs = width / 2;
    return step(this, {
      story,
      settings,
      state,
      figure: h('div', {}, planes, box),
      extra: [player({key: 'at', state, change, text: 'Let both walk', next: walk(60, most)})],
      lead:
        'Let both words walk through the text: all hands turn, and the angles between them stay. So does the score. Then move the words apart.',
      text: [
        'RoPE adds nothing: it turns each pair of channels of the query (solid) and the key (dashed) by an angle that grows with the position. As on a clock, fast hands tell neighbours apart and slow hands tell near from far.'
      ],
      formula: [
        math(o('⟨'), i('R'), o('('), i('m'), o(')'), i('q'), o(','), i('R'), o('('), i('n'), o(')'), i('k'), o('⟩'), o('='),
          o('⟨'), i('q'), o(','), i('R'), o('('), i('n'), o('−'), i('m'), o(')'), i('k'), o('⟩')),
        math(sub(i('θ'), i('t')), o('='), sup(i('base'), row(o('−'), i('2'), i('t'), o('/'), i('d'))))
      ],
      papers: [paper('Su et al. 2021, RoFormer', '2104.09864')],
      workshop: viewLink({id: 'rope'}, 'wavelengths and scalings'),
      notes: [
        'The words “loved” and “him” have eight channels here, four dials; a head of Llama has 128, and 64 dials. The base is small, so that the slow dials can be seen to turn.',
        'Before the product the library rotates both vectors; the picture shows the same angles.'
      ],
      compute(state) {
        const {at, back, base} = state, m = at + back, text = `rope,base=${base}`,
                         {frequency} = core.frequencies(`${text},dim=${width}`, width, 1);
        settings.set(state);
        const longest = c => Math.max(Math.hypot(q[c], q[c + pairs]), Math.hypot(k[c], k[c + pairs])) || 1;
        planes.replaceChildren(...Array.from({length: pairs}, (_, c) => dial({
          hands: [[q[c], q[c + pairs], m * frequency[c], '', 0], [k[c], k[c + pairs], at * frequency[c], '5 4', 1]],
          longest: longest(c),
          between: true,
          lines: [`${(frequency[c] * 180 / Math.PI).toPrecision(2)}° a step`],
          label: `dial ${c + 1}: the query has turned by ${fixed(m * frequency[c], 2)}, the key by ${
            fixed(at * frequency[c], 2)} radians`
        })));
        const term = {text, arrays: {q_positions: {shape: [1], data: [0]}, k_positions: {shape: [1], data: [0]}}};
        const score = (query, key) => {
          term.arrays.q_positions.data = [query], term.arrays.k_positions.data = [key];
          core.problem({lenQ: 1, lenK: 1, dimK: width, terms: [term], q, k});
          return core.row(0, 0).scaled[0];
        };
        const x = Array.from({length: reach + 1}, (_, n) => n), y = x.map(n => score(n, 0)), here = score(m, at);
        box.replaceChildren(chart({
          title: 'The score, by how far apart they are',
          xLabel: 'how far the key is before the query',
          yLabel: 'score',
          width: Math.min(widthOf(box), 820),
          height: roomy(box) ? 300 : 190,
          series: [{name: '', x, y}],
          marks: [{x: back, text: minus(fixed(here))}],
          onpick: to => change({back: Math.min(Math.max(Math.round(to), 0), reach)})
        }));
        return {
          said: [
            `The key at ${at}, the query at ${m}: the score is `, h('strong', {}, minus(fixed(here))),
            `. At 0 and ${back} it is ${minus(fixed(y[back]))}.`
          ],
          numbers: {here, there: y[back]},
          csv: () => [['apart', 'score'], ...x.map((n) => [n, y[n]])],
          code: {
            CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("rope.npz", q=${nested(q, [1, 1, 1,
              width])}, k=${nested(k, [1, 1, 1, width])}, v=${nested(k, [1, 1, 1, width])}, m=[${m}.0], n=[${at}.0])\nEND\n` +
              shell(['relpos', 'explain', '--input', 'rope.npz', '--rope', `base=${base},q_positions=m,k_positions=n`])
          }
        };
      }
    });
  }
};
