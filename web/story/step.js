// step.js -- the page of a step: instructions, the figure, its settings, an explanation, and links to other steps.
// SPDX-License-Identifier: Apache-2.0
import {exporter, ofElement} from '../export.js';
import {h, marker, narrow} from '../ui.js';

import {number} from './number.js';

/** Create a link to a paper. */
export const paper = (text, number) => h('a', {href: `https://arxiv.org/abs/${number}`, rel: 'noopener'}, text);

/** Create a button that animates a setting: from its current value to the end, then from the start again. The animation
 * stops when the user presses the button again, changes the setting, or leaves the step. next(value, milliseconds)
 * returns the new value, or null to stop. With `ends`, [first, last], it begins at the first value and stops at the
 * last; these may change, and so may `button.rest`, its text when nothing plays. */
export function player({key, state, change, next, text = 'Play', ends}) {
  let last = 0, expected;
  const button = h('button', {type: 'button', 'aria-pressed': false, onclick: () => last ? stop() : start()}, text);
  button.rest = text;
  const speak = how => button.closest('section')?.querySelector('p[role=status]').setAttribute('aria-live', how);
  const stop = () => {
    last = 0;
    speak('polite');
    button.textContent = button.rest;
    button.setAttribute('aria-pressed', false);
  };
  const play = now => {
    if (!last) return;
    if (!button.isConnected || state()[key] !== expected) return stop();
    const wanted = next(expected, now - last), value = ends ? Math.min(wanted, ends[1]) : wanted;
    if (value === null) return stop();
    if (value !== expected) change(key, value);
    expected = state()[key];
    if (ends && expected >= ends[1]) return stop();
    last = now;
    requestAnimationFrame(play);
  };
  const start = () => {
    last = performance.now();
    speak('off');  // keep screen readers from reading every frame
    if (ends) change(key, ends[0]);
    expected = state()[key];
    button.textContent = 'Stop';
    button.setAttribute('aria-pressed', true);
    requestAnimationFrame(play);
  };
  return button;
}

/** Return a `next` for player: one step every `each` milliseconds through 0 ... n - 1, then from 0 again. */
export function walk(each, n) {
  let rest = 0;
  return (value, ms) => {
    const steps = Math.floor((rest += ms) / each);
    rest -= steps * each;
    return (value + steps) % n;
  };
}

/** Return a `next` for player that doubles the value every second, up to `most`; the values are multiples of `step`. */
export function doubling(most, step = 1) {
  let exact = 0;
  const rounded = () => Math.round(exact / step) * step;
  return (value, ms) => {
    if (rounded() !== value) exact = value;
    exact = Math.min(exact * 2 ** (ms / 1000), most);
    return rounded();
  };
}

/** Return the width that a figure in `box` should have. */
export const widthOf = box => Math.max(280, box.clientWidth || document.getElementById('main').clientWidth - 8);

/** Return the height in pixels from the top of the picture that contains `box` to the end of the first screen. */
export function heightOf(box) {
  const picture = box.closest('.picture'), {previousElementSibling: lead, parentElement: story} = picture,
        above = getComputedStyle(story).display === 'grid' ? story.firstElementChild :
                                                             lead;  // the picture is beside the lead or below it
  const style = getComputedStyle(picture),
        edges = ['marginTop', 'borderTopWidth', 'paddingTop', 'paddingBottom', 'borderBottomWidth'];
  return innerHeight - above.offsetTop - above.offsetHeight -
    edges.reduce((sum, edge) => sum + parseFloat(style[edge]), 0);
}

/** Return the height of a figure in `box`: `small` where there is little space, otherwise what the first screen leaves,
 * less `rest` pixels of other parts of the picture. */
export const tall = (box, small, rest = 0) =>
  roomy(box) ? Math.round(Math.min(Math.max(heightOf(box) - rest, small), 0.8 * widthOf(box))) : small;

/** Return true if there is space for a large figure in `box`. */
export const roomy = box => widthOf(box) > 560 && innerHeight > 560;

/** Create a question that the reader may answer before trying. choices: texts; right(): the index of the right one, or
 * those of several, [] if they are not known yet; because: a sentence, or a function that returns it; reveal(right):
 * show the answer in the figure. set(text) forgets the answer if the reader's text has changed. */
function question({ask, choices, right, because, reveal}) {
  const answer = h('span', {role: 'status'});
  const buttons = choices.map((text, n) => h('button', {
    type: 'button',
    'aria-pressed': false,
    onclick: () => {
      const best = [right()].flat();
      if (!best.length) return;
      buttons.forEach((button, k) => button.setAttribute('aria-pressed', k === n));
      answer.textContent = `${best.includes(n) ? 'Right' : `Not quite: ${best.map(k => choices[k]).join(', ')}`}. ${
        typeof because === 'function' ? because() : because}`;
      reveal(best);
    }
  },
                                text));
  let of = null;
  const set = text => {
    if (of !== null && text !== of) {
      answer.textContent = '';
      for (const button of buttons) button.setAttribute('aria-pressed', false);
    }
    of = text;
  };
  const element = h('div', {class: 'guess', role: 'group', 'aria-label': 'A guess'},
    h('span', {}, h('strong', {}, 'Guess: '), ask), buttons, answer);
  return {element, set};
}

/** Create a cover for the part of a picture that answers the question of its step. `text` names what its button shows.
 * */
export const coverOf = text => h('div', {class: 'cover'}, h('button', {type: 'button'}, text));

const link = (step, content, more) => h('a', {href: `#${step.id}`, 'data-view': step.id, ...more}, content);
const views = text => h('a', {href: '#length', 'data-view': 'length', class: 'next'}, text);

/** Return the links above a step: to every step, and to the next. */
const wayOf = (story, at, after) => h('nav', {class: 'steps', 'aria-label': 'Steps of the story'},
  h('ol', {}, story.map((step, k) => h('li', {}, link(step, String(k + 1), {
    title: step.title,
    'aria-label': `Step ${k + 1}: ${step.title}`,
    'aria-current': k === at ? 'step' : undefined
  })))),
  after ? link(after, 'Next →', {class: 'next', 'aria-label': `Next: ${after.name}`}) : views('Views →'),
  at ? null : h('span', {class: 'note'}, 'Positions in attention, in eight figures'));

/** Return the links below a step. */
const turnOf = (before, after) =>
  h('nav', {class: 'turn', 'aria-label': 'Previous and next step'}, before && link(before, `← ${before.name}`),
    after ? link(after, `Next: ${after.name} →`, {class: 'next'}) : views('To the views →'));

/** Remove a cover with its button and with arrow keys in the picture. Return a function that removes it. */
function uncovering(cover, picture) {
  const uncover = () => cover && (cover.hidden = true);
  if (cover) {
    cover.firstChild.addEventListener('click', () => {
      uncover();
      picture.querySelector('[tabindex="0"]').focus({preventScroll: true});
    });
    picture.addEventListener('keydown', ({key}) => /^(Arrow|Home|End|Page)/.test(key) && uncover());
  }
  return uncover;
}

/** Return the numbers of a sentence that can be dragged: {drag: see `step`, set(state)}. */
function draggedNumbers(specs, change) {
  const numbers = new Map(), drag = (key, options) => {
    const spec = specs.find(spec => spec.key === key), made = number(spec, spec.change ?? change, options);
    numbers.set(key, made);
    return made.element;
  };
  return {
    drag,
    set: state => {
      for (const [key, {set}] of numbers) set(state[key]);
    }
  };
}

/** Return the explanation of a step: {prose, why: what is folded, or null}. */
function explanation(text, fold) {
  const prose = text.map(part => h('p', {}, part)), folded = prose.splice(fold);
  return {prose, why: folded.length ? h('details', {class: 'why'}, h('summary', {}, 'Why?'), folded) : null};
}

/** Keep the settings before the picture where the page has one column: Tab goes from left to right. */
function arrange(picture, move) {
  const place = () => narrow.matches ? picture.after(move) : picture.before(move);
  place();
  narrow.addEventListener('change', place);
}

/** Call draw() after the width of a picture has changed. */
function redrawn(picture, draw) {
  let width = 0;
  new ResizeObserver(([{contentRect}]) => {
    const changed = width && contentRect.width !== width;
    width = contentRect.width;
    if (changed) draw();
  }).observe(picture);
}

/** Return the sections below the explanation of a step; code: an element; of(): what is saved. */
const appendix = ({papers, workshop, notes, save}, turn, of,
  code) => [h('p', {class: 'note'}, 'Read: ', papers.flatMap((paper, k) => k ? ['; ', paper] : [paper]),
              '. Try: ', workshop, '.'),
  turn, exporter(of, undefined, save), h('details', {}, h('summary', {}, 'Notes'), notes.map(note => h('p', {}, note))),
  h('details', {}, h('summary', {}, 'The same numbers with the command'), code)];

/** Return the page of a step. lead: the sentences above the figure, or a function of `drag` that returns them;
 * drag(key, options) creates a number.js for a setting. text: paragraphs; those from `fold` on answer the question, so
 * they are folded until the reader guesses or opens them. extra, save: buttons, below the question and beside those
 * that save the figure. formula: parts, or a function of the state that returns them. guess: see `question`. cover:
 * made by `coverOf`, in the figure; a guess removes it, and so do its button, arrow keys in the picture, and a setting
 * that differs from its default. settings: beside the picture, unless they are in the figure. compute(state) returns
 * {said, cut, csv(), code: {CLI}, numbers}; `said` is the sentence above the settings, and `cut` says which part of the
 * reader's text is shown, if not all of it. If the width changes, the figure is drawn again. */
export function step({id, title, defaults}, of) {
  const {story, lead, guess, cover, figure, settings, extra = [], text, fold = Infinity, formula, compute, state} = of;
  const problem = h('p', {class: 'problem', role: 'alert'}), said = h('p', {class: 'said', role: 'status'}),
        code = h('pre', {tabindex: 0, 'aria-label': 'command'});
  const at = story.findIndex(step => step.id === id), before = story[at - 1], after = story[at + 1];
  let last = null;
  const {drag, set} = draggedNumbers(settings.specs, of.change);
  const picture = h('div', {class: 'picture'}, figure),
        written = h('p', {class: 'formula', tabindex: 0, role: 'group', 'aria-label': 'formula'},
          typeof formula === 'function' ? [] : formula),
        uncover = uncovering(cover, picture), {prose, why} = explanation(text, fold);
  const reveal = right => {
    uncover();
    if (why) why.open = true;
    guess.reveal?.(right);
  };
  const asked = question({...guess, reveal});
  const move = h('div', {class: 'move'}, asked.element, extra.length ? h('div', {class: 'row'}, extra) : null, problem,
    said, figure.contains(settings.element) ? null : settings.element);
  const root = h('section', {class: 'story', 'aria-labelledby': 'title'}, wayOf(story, at, after),
    h('h2', {id: 'title'}, title), h('p', {class: 'lead'}, typeof lead === 'function' ? lead(drag) : lead), picture,
    move,
    h('div', {class: 'text'}, prose, why, written,
      appendix(of, turnOf(before, after), () => ({name: id, figure: ofElement(picture, title), csv: last.csv}), code)));
  arrange(picture, move);
  const mark = marker([picture, said]);
  const update = state => {
    let failed = '';
    if (Object.keys(defaults).some(key => key !== 'text' && state[key] !== defaults[key])) uncover();
    asked.set(state.text);
    set(state);
    try {
      last = compute({...state});  // what it draws remains that of this state
      said.replaceChildren(...[last.said].flat(), last.cut ? ` ${last.cut}` : '');
      code.textContent = last.code.CLI;
      if (typeof formula === 'function') written.replaceChildren(...formula(state));
    } catch (error) { failed = error.message || String(error); }
    problem.textContent = failed;
    mark(failed !== '');
    return failed;
  };
  redrawn(picture, () => root.isConnected && update(state()));
  return {
    root,
    specs: settings.specs,
    update,
    code: () => last?.code,
    csv: () => last && [...last.csv()],
    numbers: () => last?.numbers
  };
}
