// app.js -- shows the step of the story or the view that the page's address names, and keeps its state in the address.
// Each view is one file in views/ and one line here. SPDX-License-Identifier: Apache-2.0
import {load, unpackObject} from './core.js';
import {story} from './story/story.js';
import {addressOf, fit, h, limited, misfit, viewLink} from './ui.js';
import {failed} from './unpack.js';
import {bias} from './views/bias.js';
import {buckets} from './views/buckets.js';
import {cost} from './views/cost.js';
import {families} from './views/families.js';
import {images} from './views/images.js';
import {length} from './views/length.js';
import {model} from './views/model.js';
import {rope} from './views/rope.js';
import {sentence} from './views/sentence.js';
import {shaw} from './views/shaw.js';

const workshop = [length, model, bias, sentence, buckets, shaw, rope, images, families, cost],
      views = [...story, ...workshop];

const facts = await unpackObject('facts');
Object.setPrototypeOf(facts.terms, null);  // otherwise an unknown name could find a method of Object
const main = document.getElementById('main'), nav = document.getElementById('nav'),
      theme = document.getElementById('theme');
const dark = document.getElementById('dark'), system = dark.media, pages = new Map(), states = new Map();
const tale = viewLink(story[0], 'The story');
const notice = h('p', {class: 'problem notice', role: 'alert', hidden: true});
const maxText = 2000;  // characters of the reader's text; the address contains all of them
const question = document.title;
let current, state, frame = 0, writer = 0, embedded = false,
                    routed = '';  // routed: the part of the address that is shown

/** Show a message above the view; '' removes it. */
function say(text) {
  notice.textContent = text;
  notice.hidden = !text;
}

/** Apply the chosen colours; the default is the setting of the system. */
function applyTheme() {
  document.documentElement.dataset.theme = theme.value;
  dark.media = {light: 'not all', dark: 'screen'}[theme.value] ?? system;
}

/** Keep the chosen colours while the tab is open, also when the page is loaded again, if the browser permits it. Return
 * those that were kept. */
function keepTheme(chosen) {
  try {
    if (chosen !== undefined) sessionStorage.setItem('relpos-theme', chosen);
    return sessionStorage.getItem('relpos-theme');
  } catch { return null; }
}

/** Return the initial state of a view, which may depend on the address. */
const startOf = (view, of) => ({...view.defaults, ...pages.get(view)?.start?.(of)});

/** Return a value in the form that the settings of a view accept; see `fit`. */
function accepted(view, key, value, other) {
  const spec = pages.get(view).specs.find(spec => spec.key === key);
  return spec ? fit(spec, value, other) : value;
}

const read = (view, given) =>
  Object.fromEntries(Object.entries(startOf(view, Object.fromEntries(given))).map(([key,
    value]) => [key, given.has(key) ? accepted(view, key, given.get(key), value) : value]));

/** Return the address of a view with its last state. */
function address(view) {
  const of = states.get(view) ?? {}, start = startOf(view, of), changed = new URLSearchParams();
  for (const [key, value] of Object.entries(of))
    if (value !== start[key]) changed.set(key, typeof value === 'boolean' ? +value : value);
  if (embedded) changed.set('embed', 1);
  const query = changed.toString();
  return `#${view.id}${query && '?'}${query}`;
}

/** Write the state of the current view to the address, and the state of every view to the links that lead to it; but if
 * the address has just changed, keep it for `route`. */
function write() {
  clearTimeout(writer);
  writer = 0;
  if (location.hash !== routed) return;
  history.replaceState(null, '', address(current));
  routed = location.hash;
  for (const link of document.querySelectorAll('a[data-view]'))
    link.href = addressOf(address(views.find(view => view.id === link.dataset.view)));
}

function writeSoon() {
  clearTimeout(writer);
  writer = setTimeout(write, 200);
}

/** Give the words of the reader to all other steps. A step resets what depends on the words. */
function share(text) {
  for (const view of story)
    if (view !== current && states.get(view)?.text !== text)
      states.set(view, {...view.defaults, ...states.get(view), ...anew(view), text});
}

/** Return the settings that a step resets when the words change. */
const anew = view => Object.fromEntries((view.resets ?? []).map(key => [key, view.defaults[key]]));

/** Change the state. The next animation frame shows it; a moment later it is written to the address. */
function change(patch) {
  if (Object.keys(patch).length) say('');
  const told = 'text' in patch && story.includes(current);
  if (told) patch = {...patch, text: patch.text.slice(-maxText).replace(/^[\udc00-\udfff]/, '')};
  if ('text' in patch && patch.text !== state.text) patch = {...anew(current), ...patch};
  for (const [key, value] of Object.entries(patch)) state[key] = accepted(current, key, value, state[key]);
  if (told) share(state.text);
  if (!frame)
    frame = requestAnimationFrame(() => {
      frame = 0;
      pages.get(current).update(state);
    });
  writeSoon();
}

/** Return a sentence that names the settings of a link that the current view does not have, otherwise ''. */
function strange(keys) {
  const known = [...Object.keys(state), 'theme', 'embed'],
        others = [...new Set(keys)].filter(key => !known.includes(key)).slice(0, 4).map(key => `“${key.slice(0, 40)}”`);
  return others.length ? `This view has no setting called ${others.join(' or ')}.` : '';
}

/** Show the view and the state that the address names. If it names no view, or a state that cannot be shown, say so and
 * show the default. `theme` and `embed` are only read when the page is opened. */
function route(core) {
  routed = location.hash;
  const [id, ...query] = location.hash.slice(1).split('?'), named = views.find(view => view.id === id);
  const given = new URLSearchParams(named || !id ? query.join('?') : ''), before = new URLSearchParams(location.search),
        next = named ?? views[0], first = next !== current;
  say(named || !id ? '' : `No view is called “${id.slice(0, 60)}”: this is the beginning of the story.`);
  if (!current) {
    const of = key => given.get(key) ?? before.get(key), wanted = of('theme') ?? keepTheme();  // also before the #
    if (['light', 'dark'].includes(wanted)) theme.value = wanted;
    document.documentElement.toggleAttribute('data-embed', embedded = of('embed') === '1');
  }
  applyTheme();
  current = next;
  if (!pages.has(current))
    pages.set(current, current.make({
      core,
      facts,
      views,
      story,
      change: (key, value) => change(typeof key === 'object' ? key : {[key]: value}),
      state: () => state
    }));
  const {text} = states.get(current) ?? {};
  state = read(current, given);
  states.set(current, state);
  if (story.includes(current) && given.has('text') && state.text !== text)
    share(state.text);                                          // a link brings words to all steps
  if (story.includes(current)) tale.dataset.view = current.id;  // the link to the story leads back to this step
  for (const link of nav.children)
    link.setAttribute('aria-current', link.dataset.view === current.id ? 'page' : 'false');
  document.title = `${question} – ${current.title}`;
  if (first) {
    const {offsetLeft, offsetWidth} = nav.querySelector('[aria-current=page]');
    nav.scrollLeft = offsetLeft + offsetWidth / 2 - nav.clientWidth / 2;  // a narrow screen shows only some names
    const {activeElement} = document,
          within = ['.steps', '.turn'].find(name => activeElement.closest(`.story ${name}`));
    main.replaceChildren(notice, pages.get(current).root);
    if (within)
      (main.querySelector(`${within} .next`) ?? main).focus({preventScroll: true});  // Next, Next, ... by the keyboard
    scrollTo(0, 0);
  }
  const failed = pages.get(current).update(state);
  if (failed) {
    state = startOf(current, {});
    states.set(current, state);
    if (!pages.get(current).update(state)) say(`This link cannot be shown, so you see the default: ${failed}`);
  } else {
    const specs = pages.get(current).specs.filter(({key}) => given.has(key)),
          wrong = specs.map(spec => misfit(spec, given.get(spec.key), state));
    for (const spec of specs)  // the new address has what is shown
      if (spec.limit) state[spec.key] = limited(spec, state);
    wrong.push(strange([...given.keys()]));
    if (wrong.some(Boolean)) say(wrong.filter(Boolean).join(' '));
  }
  writeSoon();
}

/** Open a file that is dropped anywhere on the page with the view that reads it, or say that none does; otherwise the
 * browser would leave the page to open it. */
function drop(event, core) {
  if (event.defaultPrevented || ![...event.dataTransfer.types].includes('Files')) return;
  event.preventDefault();
  const [file] = event.type === 'drop' ? event.dataTransfer.files : [];
  if (!file) return;
  const view = views.find(view => view.opens?.(file));
  if (!view) return say(`${file.name}: drop a text, or a .safetensors or .npz file; other files cannot be shown.`);
  if (view !== current) {
    write();
    history.pushState(null, '', address(view));
    route(core);
  }
  pages.get(view).open(file);
}

/** Fade the ends of the row of views where more of it is hidden. */
function fadeNav() {
  const {scrollLeft, clientWidth, scrollWidth} = nav;
  nav.style.setProperty('--from', +(scrollLeft > 2));
  nav.style.setProperty('--to', +(scrollLeft + clientWidth < scrollWidth - 2));
}

try {
  const core = await load();
  nav.append(tale, ...workshop.map(view => viewLink(view, view.name ?? view.title)));
  document.querySelector('h1 a').href = addressOf(`#${story[0].id}`);
  document.querySelector('.skip').addEventListener('click', event => {
    event.preventDefault();
    main.focus();
  });
  addEventListener(
    'click', () => writer && write(), true);  // before a link is followed, write the state: then Back restores it
  theme.addEventListener('change', () => {
    keepTheme(theme.value);
    applyTheme();
    change({});
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => change({}));
  addEventListener('hashchange', () => route(core));
  nav.addEventListener('scroll', fadeNav);
  new ResizeObserver(fadeNav).observe(nav);
  main.addEventListener('refused', event => say(event.detail));
  for (const what of ['dragover', 'drop']) addEventListener(what, event => drop(event, core));
  // for tests and the console: the state of the page, and the code and numbers it shows
  globalThis.relpos =
    {core, facts, views: views.map(view => view.id), page: () => pages.get(current), state: () => ({...state}), change};
  route(core);
  document.getElementById('footer').textContent = `relpos ${core.string(core.x.version())}, ${core.vectors}, ready ${
    Math.round(performance.now())} ms after the page began to load.`;
  document.documentElement.dataset.ready = Math.round(performance.now());
} catch (error) { failed(error); }
