/* t5_module.c -- the extension module relpos.t5._core: its function table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

const char *last_error(void)
{
    return rp_t5_last_error();
}

void close_model(void *model)
{
    rp_t5_close(model);
}

rp_status pack_model(const void *model, const char *path)
{
    return rp_t5_pack(model, path);
}

const char *model_note(const void *model, int64_t n)
{
    return rp_t5_note(model, n);
}

static PyMethodDef methods[] = {
    {"open", core_open, METH_VARARGS, "open(path, type, threads, draft, tokenizer, no_tokenizer)"},
    {"close", core_close, METH_VARARGS, "close(model)"},
    {"info", core_info, METH_VARARGS, "info(model)"},
    {"notes", core_notes, METH_VARARGS, "notes(model)"},
    {"drafted", core_drafted, METH_VARARGS, "drafted(model)"},
    {"pack", core_pack, METH_VARARGS, "pack(model, path)"},
    {"tokenize", core_tokenize, METH_VARARGS, "tokenize(model, text)"},
    {"detokenize", core_detokenize, METH_VARARGS, "detokenize(model, tokens, skip_special)"},
    {"prompt", core_prompt, METH_VARARGS, "prompt(model, name)"},
    {"settings", core_settings, METH_VARARGS, "settings(model)"},
    {"generate", core_generate, METH_VARARGS, "generate(model, sources, settings, on_token, flag)"},
    {"encode", core_encode, METH_VARARGS, "encode(model, sources, out, progress)"},
    {"vector", core_vector, METH_VARARGS, "vector(model, prompt, hidden, out)"},
    {"score", core_score, METH_VARARGS, "score(model, (source, target), each, progress)"},
    {"attention", core_attention, METH_VARARGS, "attention(model, part, layer, head, (source, target), progress)"},
    {"residues", core_residues, METH_VARARGS, "residues(model, family, texts)"},
    {"encode_residues", core_encode_residues, METH_VARARGS, "encode_residues(model, proteins, out, progress)"},
    {"fasta", core_fasta, METH_VARARGS, "fasta(path)"},
    {"fasta_next", core_fasta_next, METH_VARARGS, "fasta_next(file)"},
    {"fasta_skip", core_fasta_skip, METH_VARARGS, "fasta_skip(file)"},
    {0},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "relpos.t5._core",
    .m_doc = "The C functions behind the package relpos.t5. Import relpos.t5 instead.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
