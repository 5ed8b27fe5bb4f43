// reader.js -- lets trained models read a long text with several schemes in a worker, so that the page keeps
// responding. SPDX-License-Identifier: Apache-2.0
import {allModels} from './trained.js';

/** Run in the worker: read a text in parts of `part` bytes as far as the page wants, and send the losses of each part.
 * */
function work(instantiate, Trained, part) {
  let core, models, job = null, wanted = 0, asleep = true;
  const trained = m => models[m].loaded ??= new Trained(core, models[m].head, models[m].bytes, m);
  const step = () => {
    if (!job || job.read >= wanted) return asleep = true;
    const to = Math.min(job.read + part, wanted), tokens = job.tokens.subarray(job.read, to + 1);
    try {
      const losses = job.of.map(({m, limit}, n) => job.read < limit ? trained(m).next(n, tokens) : []);
      postMessage({id: job.id, from: job.read, to, losses});
      job.read = to;
    } catch (error) { fail(error); }
    setTimeout(step);  // receive messages between two parts
  };
  const fail = error => {
    postMessage({id: job.id, failed: error.message});
    job = null;
  };
  const begin = ({id, tokens, of, capacity}) => {
    job = {id, tokens, of, read: 0};
    wanted = 0;
    try {
      const loaded = of.map(({m}) => trained(m));  // loading a model ends all readers
      for (let n = 0; n < 5; n++) loaded[0].end(n);
      of.forEach(({position, limit}, n) => loaded[n].begin(n, position, Math.min(capacity, limit)));
    } catch (error) { fail(error); }
  };
  const receive = async data => {
    if (data.module) core = await instantiate(data.module), models = data.models;
    if (data.tokens) begin(data);
    if (data.wanted === undefined) return;
    wanted = data.wanted;
    if (asleep) asleep = false, step();
  };
  let last = Promise.resolve();
  onmessage = ({data}) => last = last.then(() => receive(data));
}

/** Start the worker. Its program consists of modules of this page. */
async function start(core) {
  const modules = document.getElementById('script').textContent.split(/\n(?=modules\[)/);
  const of = name => modules.find(text => text.startsWith(`modules['${name}'] = `));
  const program = `(async () => {const modules = {};\n${of('unpack.js')}\n${of('core.js')}\n${of('trained.js')}\n(${
    work})(modules['core.js'].instantiate, modules['trained.js'].Trained, 64);})();`;
  const url = URL.createObjectURL(new Blob([program], {type: 'text/javascript'})), worker = new Worker(url);
  worker.postMessage({module: core.module, models: await allModels()});
  return worker;
}

export class Reader {
  /** Call onread(text) when more of a text has been read, and onfail(message, text) when it cannot be read. */
  constructor(core, onread, onfail) { Object.assign(this, {core, onread, onfail, id: 0, text: null}); }

  send(message) {
    this.worker ??= start(this.core).then(worker => {
      worker.onmessage = ({data}) => this.receive(data);
      worker.onerror = event =>
        this.onfail(`the worker cannot start: ${event.message ?? 'the browser refuses it'}`, this.text);
      return worker;
    });
    this.worker.then(worker => worker.postMessage(message), error => this.onfail(error.message, this.text));
  }

  receive({id, from, to, losses, failed}) {
    const {text} = this;
    if (id !== text.id) return;
    if (failed) return this.onfail(failed, text);
    losses.forEach((loss, n) => text.losses[n].set(loss, from));
    text.read = to;
    this.onread(text);
  }

  /** Begin tokens with each of these: {m: a model, position: its terms, limit: how many tokens it can read, a multiple
   * of 64 or Infinity}. capacity: for how many tokens to have memory. Return {read, losses: one array for each, with
   * NaN where nothing was read}, which changes while the worker reads. */
  begin(tokens, of, capacity) {
    const id = ++this.id;
    this.send({id, tokens, of, capacity});
    return this.text =
             {id, tokens, capacity, read: 0, losses: of.map(() => new Float64Array(tokens.length - 1).fill(NaN))};
  }

  /** Read as far as n tokens; with 0, pause. */
  want(n) { this.send({wanted: n}); }
}
