// frame.js -- the page of a view: settings, output, errors, formula and source, and code that reproduces the output.
// SPDX-License-Identifier: Apache-2.0
import {exporter} from './export.js';
import {control, copyButton, h, marker, narrow} from './ui.js';

const sources =
  [];  // the sections with formula and source of all views; opening or closing one does the same to the others

/** Return the documentation of the named terms: formula, source, parameters, arrays. */
export function docs(facts, names) {
  return [...new Set(names)].filter(name => facts.terms[name]).map(name => {
    const term = facts.terms[name];
    const section = h('section', {class: 'docs'}, h('h3', {}, `${name}: ${term.title}`),
      h('p', {class: 'note'}, `Source: ${term.source}. Syntax: `, h('code', {}, term.syntax)));
    const body = h('div');
    body.innerHTML = term.html +
      [['Parameters', term.said], ['Arrays', term.arrays]]
        .filter(([, said]) => said.length)
        .map(([what, said]) => `<p>${what}: ${said.join('; ')}.</p>`)
        .join('');  // HTML that bundle.py made from docs/terms
    section.append(body);
    return section;
  });
}

/** Return the section with the code of a view, in one language at a time: {element, show(code)}. */
function codeSection() {
  const text = h('pre', {tabindex: 0, 'aria-label': 'code'}), summary = h('summary');
  let known = {}, language = 'CLI';
  const choices = ['CLI', 'Python', 'C'].map(name => h('button', {
    type: 'button',
    'aria-pressed': name === language,
    onclick: () => {
      language = name;
      write();
    }
  },
                                               name));
  const copied = h('span', {class: 'note', role: 'status'});
  const write = () => {
    const shown = known[language] === undefined ? 'CLI' : language;
    for (const button of choices) {
      button.setAttribute('aria-pressed', button.textContent === shown);
      button.hidden = known[button.textContent] === undefined;
    }
    text.textContent = known[shown] ?? '';
    summary.textContent =
      `The same numbers with the command${known.Python === undefined ? '' : ', in Python and in C'}`;
  };
  const element = h('details', {open: true}, summary,
    h('div', {class: 'row', role: 'group', 'aria-label': 'Language'}, choices,
      copyButton('Copy', () => text.textContent, copied, 'select the text'), copied),
    text);
  const show = code => {
    known = code;
    write();
  };
  return {element, show};
}

/** Return the settings and what the view shows, beside the output: {opening: the first sentence of that, side: the
 * elements}. On a wide page, the first sentence is below the title. */
function sideOf(about, settings, output) {
  const sheet = h('details', {class: 'sheet', open: !narrow.matches}, h('summary', {}, 'Settings'), settings.element);
  const [first, ...rest] = [about].flat(), end = first.search(/\. /) + 1 || first.length, opening = first.slice(0, end);
  const said = h('details', {class: 'about', open: !narrow.matches}, h('summary', {}, 'What this view shows'),
    h('span', {class: 'first'}, opening, ' '), first.slice(end), rest);
  narrow.addEventListener('change', () => sheet.open = said.open = !narrow.matches);
  sheet.addEventListener('toggle', () => {  // open settings leave the first picture in sight
    const pictures = [...output.querySelectorAll('canvas[tabindex], svg, .grid')].filter(e => e.clientHeight > 60);
    const top = e => e.getBoundingClientRect().top;
    if (narrow.matches && sheet.open && pictures.length)
      scrollBy(0, top(pictures.reduce((a, b) => top(b) < top(a) ? b : a)) - 8);
  });
  return {opening, side: [sheet, said]};
}

/** Return the section with the formula of a view and the documentation of its terms: {element, show(names)}. */
function sourceSection(formula, facts) {
  const meaning = h('div'),
        element =
          h('details', {open: sources[0]?.open, ontoggle: () => sources.forEach(other => other.open = element.open)},
            h('summary', {}, 'Formula and source'), h('pre', {tabindex: 0, 'aria-label': 'formula'}, formula), meaning);
  sources.push(element);
  let documented = '';
  const show = names => {
    if (names.join() === documented) return;
    documented = names.join();
    meaning.replaceChildren(...docs(facts, names));
  };
  return {element, show};
}

/** Return what chooses among the figures that a view can save: {specs: its settings, element, show(found, state): put
 * the chosen figure into what compute returned}. saves: {key: name}, or undefined if there is one figure. */
function savedChoice(saves, change) {
  if (!saves) return {specs: [], show: () => {}};
  const spec = {key: 'save', label: 'What to save', type: 'select', options: Object.entries(saves)},
        {element, set} = control(spec, change);
  const show = (found, state) => {
    const key = Object.hasOwn(found.saves, state.save) ? state.save : Object.keys(found.saves)[0];
    set(key);
    element.hidden = Object.keys(found.saves).length < 2;
    for (const option of element.querySelectorAll('option')) option.hidden = !Object.hasOwn(found.saves, option.value);
    Object.assign(found, found.saves[key]);
  };
  return {specs: [spec], element, show};
}

/** Return the page of a view. compute(state) returns {name, figure, csv() or saves: {key: {figure, csv()}}, code: {CLI,
 * Python, C} or only {CLI}, docs: [...]}. saves: {key: name} lists the figures that can be saved, if there are several;
 * compute returns those of the current state. If compute throws an error, the page shows it, and dims the previous
 * output after a moment. update returns the error or ''. */
export function frame({title, about, formula, settings, output, facts, compute, saves, change}) {
  let last = null;
  const problem = h('p', {class: 'problem', role: 'alert'}), code = codeSection(), choice = savedChoice(saves, change),
        save = exporter(() => last, choice.element), {opening, side} = sideOf(about, settings, output),
        source = sourceSection(formula, facts);
  const root =
    h('section', {'aria-labelledby': 'title'}, h('h2', {id: 'title'}, title), h('p', {class: 'opening'}, opening),
      h('div', {class: 'work'}, h('div', {class: 'side'}, side),
        h('div', {class: 'main'}, problem, output, save, source.element, code.element)));
  const sections = [output, save, code.element], mark = marker(sections);
  return {
    root,
    specs: [...settings.specs, ...choice.specs],
    update(state) {
      let failed = '';
      for (const section of sections)
        section.hidden = false;  // show the sections now, because figures measure their width
      try {
        last = compute({...state});  // what it draws remains that of this state
      } catch (error) { failed = error.message || String(error); }
      problem.textContent = failed &&
        (last ? `${failed.replace(/[^.?!]$/, '$&.')} Below are the picture and numbers of the last valid settings.` :
                failed);
      for (const section of sections) section.hidden = !last;
      mark(failed !== '');
      if (failed) return failed;
      choice.show(last, state);
      code.show(last.code ?? {});
      source.show(last.docs ?? []);
      for (const hint of [...output.querySelectorAll('.hint')].slice(1)) hint.textContent = '';  // one is enough
      return '';
    },
    code: () => last?.code,
    csv: () => last && [...last.csv()],
    numbers: () => last?.numbers,
  };
}
