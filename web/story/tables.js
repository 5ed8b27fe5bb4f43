// tables.js -- a trained T5 table from the laboratory's model, which several steps use. SPDX-License-Identifier:
// Apache-2.0

/** Return the T5 term of a layer and its table. bundle.py stores the table as f16. */
export function trainedTable(core, facts, layer) {
  const {shape, f16} = facts.lab.layers[layer]['t5.table'], bytes = Uint8Array.from(atob(f16), c => c.charCodeAt(0));
  return {
    text: 't5,buckets=32,max_distance=128,bidirectional=0',
    arrays: {table: {shape, data: core.doubles(bytes, 'f16', bytes.length / 2)}}
  };
}
