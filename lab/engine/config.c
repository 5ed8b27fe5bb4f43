/* config.c -- experiments as text. A single table of keys drives the parser, the range checks, the printed form and the
 * help.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/base/edits.h"
#include "lab/engine/nn.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_type { KEY_INT, KEY_REAL, KEY_CHOICE, KEY_TEXT } key_type;
typedef struct key {
    const char *name;
    key_type type;
    size_t offset;
    const char *choices; /* KEY_CHOICE: names of the values 0, 1, ... as "a|b" */
    double min, max;
    const char *default_value;
    const char *help;
} key;

#define AT(field) offsetof(nn_config, field)
static const key keys[] = {
    {"task", KEY_CHOICE, AT(task), "decoder|classifier|encoder-decoder", 0, 0, "decoder",
     "decoder: predict the next token; classifier: predict which file a window is from; encoder-decoder: read a source "
     "and write a target"},
    {"layers", KEY_INT, AT(layers), NULL, 1, 256, "2", "number of blocks of attention and MLP"},
    {"decoder_layers", KEY_INT, AT(decoder_layers), NULL, 0, 256, "0",
     "layers of the decoder in an encoder-decoder, where `layers` is the number for the encoder; 0: same as layers"},
    {"width", KEY_INT, AT(width), NULL, 1, 65536, "64", "channels of the residual stream"},
    {"heads", KEY_INT, AT(heads), NULL, 1, 1024, "4",
     "attention heads per layer; width must be a multiple of this number"},
    {"mlp", KEY_INT, AT(mlp), NULL, 1, 1 << 20, "256", "channels inside the MLP"},
    {"activation", KEY_CHOICE, AT(act), "gelu|relu|swiglu|geglu", 0, 0, "gelu",
     "activation of the MLP; gelu uses the tanh formula; swiglu and geglu are gated and add a third matrix"},
    {"norm", KEY_CHOICE, AT(norm), "layernorm|rmsnorm", 0, 0, "layernorm",
     "norm before each attention and MLP, and after the last layer"},
    {"norm_eps", KEY_REAL, AT(norm_eps), NULL, 1e-12, 1, "1e-5", "added to the variance in a norm"},
    {"vocab", KEY_INT, AT(vocab), NULL, 2, 1 << 20, "256",
     "number of tokens: 256 for bytes, or 257 with bos; with a tokenizer, at least its number of tokens; for an "
     "encoder-decoder, at least 259 (ByT5 has 384)"},
    {"classes", KEY_INT, AT(classes), NULL, 2, 1 << 20, "2", "number of classes of a classifier; each file is a class"},
    {"tied", KEY_CHOICE, AT(tied), "0|1", 0, 0, "1",
     "1: the embedding is also the output matrix; an encoder-decoder then divides by sqrt(width) before it, as T5 "
     "does"},
    {"bos", KEY_CHOICE, AT(bos), "0|1", 0, 0, "0",
     "1: every window of a decoder begins with a special token, vocab - 1; for bytes, set vocab = 257"},
    {"generate", KEY_CHOICE, AT(generate), "none|copy|reverse|recall|passkey|addition", 0, 0, "none",
     "train a decoder on generated lines of a task, such as abc=cba, instead of a text; only the answers have a loss"},
    {"generate_size", KEY_INT, AT(generate_size), NULL, 1, 1 << 22, "20",
     "largest size of generated lines in training, in letters, names or digits; relpos lab sweep measures at the sizes "
     "in eval_lengths"},
    {"position", KEY_TEXT, AT(position), NULL, 0, 0, "none",
     "none, or any of these joined by +: sinusoidal, learned, and terms as in options of relpos attend"},
    {"encoder_position", KEY_TEXT, AT(encoder_position), NULL, 0, 0, "",
     "terms of the encoder in an encoder-decoder; empty: same as position"},
    {"position_layers", KEY_CHOICE, AT(position_layers), "own|shared", 0, 0, "own",
     "own: each layer learns its own arrays of the terms; shared: all layers use the same arrays"},
    {"position_heads", KEY_CHOICE, AT(position_heads), "own|shared", 0, 0, "own",
     "own: each head learns its own arrays of the terms; shared: all heads use the same arrays if the term allows it"},
    {"scale", KEY_REAL, AT(scale), NULL, 0, 1e6, "0",
     "factor of the product of query and key; 0: 1/sqrt(width / heads)"},
    {"nope_every", KEY_INT, AT(nope_every), NULL, 0, 1024, "0",
     "omit the position terms in layers N, 2N, 3N and so on: with 4, in every fourth layer; 0: all layers have terms"},
    {"random_positions", KEY_INT, AT(random_positions), NULL, 0, 1 << 24, "0",
     "N above 0: draw the positions of a window at random from 0 to N - 1, in ascending order (Ruoss 2023)"},
    {"fire_scales", KEY_CHOICE, AT(fire_scales), "fixed|learned", 0, 0, "fixed",
     "c and L of fire: fixed, or learned in each layer from the values in position"},
    {"log_scale", KEY_CHOICE, AT(log_scale), "none|fixed|learned", 0, 0, "none",
     "multiply the queries of a decoder by s log(n), where n counts the tokens up to the query; fixed: s = "
     "1/log(length); learned: each head learns s from that value"},
    {"dropout", KEY_REAL, AT(dropout), NULL, 0, 0.99, "0",
     "probability of dropout, applied to attention weights and to outputs before they are added to the residual "
     "stream"},
    {"init", KEY_REAL, AT(init), NULL, 1e-6, 10, "0.02",
     "standard deviation of the initial matrices; matrices that write to the residual stream divide it by "
     "sqrt(2 layers)"},
    {"embedding_init", KEY_REAL, AT(embedding_init), NULL, 0, 100, "0",
     "standard deviation of the initial embedding; 0: 0.02, or 1/sqrt(width) with embedding_scale = 0, or 1 in an "
     "encoder-decoder with tied = 1"},
    {"embedding_scale", KEY_REAL, AT(embedding_scale), NULL, 0, 1e6, "1",
     "factor of the embedding before positions are added; 0: sqrt(width)"},
    {"sinusoidal_scale", KEY_REAL, AT(sinusoidal_scale), NULL, 0, 1e6, "0",
     "amplitude of sinusoidal positions; 0: embedding_init times the factor of the embedding, or, if embedding_init is "
     "0 too, 0.02 times embedding_scale, or 1 if embedding_scale is 0"},
    {"length", KEY_INT, AT(length), NULL, 1, 1 << 24, "128",
     "tokens in a training window; for an encoder-decoder, the largest number of tokens in a source, with its end "
     "token"},
    {"target_length", KEY_INT, AT(target_length), NULL, 0, 1 << 24, "0",
     "largest number of tokens in a target of an encoder-decoder, with its end token; 0: same as length"},
    {"batch", KEY_INT, AT(batch), NULL, 1, 65536, "8", "windows or pairs in a batch"},
    {"accumulate", KEY_INT, AT(accumulate), NULL, 1, 65536, "1",
     "batches in a step; their gradients are added, so a step needs the memory of one batch"},
    {"steps", KEY_INT, AT(steps), NULL, 1, 1000000000, "300", "steps of the optimizer"},
    {"warmup", KEY_INT, AT(warmup), NULL, 0, 1000000000, "30", "steps over which the learning rate rises to lr"},
    {"lr", KEY_REAL, AT(lr), NULL, 0, 100, "0.003", "learning rate"},
    {"lr_min", KEY_REAL, AT(lr_min), NULL, 0, 100, "0.0003", "learning rate at the end of the cosine"},
    {"lr_terms", KEY_REAL, AT(lr_terms), NULL, 0, 1e4, "1",
     "factor of the learning rate for learned positions and learned arrays of position terms"},
    {"beta1", KEY_REAL, AT(beta1), NULL, 0, 0.999999, "0.9", "AdamW: decay of the running mean of the gradients"},
    {"beta2", KEY_REAL, AT(beta2), NULL, 0, 0.999999, "0.95", "AdamW: decay of the running mean of squared gradients"},
    {"eps", KEY_REAL, AT(eps), NULL, 1e-20, 1, "1e-8", "AdamW: added to the square root in the divisor"},
    {"weight_decay", KEY_REAL, AT(weight_decay), NULL, 0, 100, "0.1",
     "AdamW: weight decay of matrices, multiplied by the learning rate"},
    {"weight_decay_terms", KEY_REAL, AT(weight_decay_terms), NULL, 0, 100, "0",
     "AdamW: weight decay of learned positions and learned arrays of position terms"},
    {"clip", KEY_REAL, AT(clip), NULL, 0, 1e9, "1",
     "scale the gradients down if the norm of all of them is above this; 0: never"},
    {"seed", KEY_INT, AT(seed), NULL, 0, 1e15, "1", "seed of the initial weights, the windows and dropout"},
    {"log_every", KEY_INT, AT(log_every), NULL, 1, 1000000000, "10", "steps between lines in the log"},
    {"eval_every", KEY_INT, AT(eval_every), NULL, 0, 1000000000, "0",
     "steps between measurements on the held-out text, in a sweep at the trained length; 0: only at the end"},
    {"eval_bytes", KEY_INT, AT(eval_bytes), NULL, 1, 1e15, "65536",
     "largest number of bytes of the held-out text that a measurement reads"},
    {"eval_pieces", KEY_INT, AT(eval_pieces), NULL, 1, 1000000, "1",
     "pieces that eval_bytes is divided into, spread evenly over the held-out text; results list the loss of each "
     "piece"},
    {"eval_stride", KEY_INT, AT(eval_stride), NULL, 0, 1 << 24, "0",
     "0: relpos lab sweep measures in windows that do not overlap; N: each window moves by N tokens and predicts its "
     "last N, which are the same tokens for all lengths"},
    {"eval_context", KEY_INT, AT(eval_context), NULL, 0, 1 << 24, "0",
     "0: the context of a piece is the text before it; N above 0: the held-out text consists of pieces, each with a "
     "context of N tokens before it"},
    {"eval_ngrams", KEY_INT, AT(eval_ngrams), NULL, 0, NN_MAX_ORDER, "0",
     "above 0: relpos lab sweep also measures an n-gram baseline of up to N bytes on the same bytes"},
    {"eval_previous", KEY_INT, AT(eval_previous), NULL, 0, 1000000000, "0",
     "above 0: relpos lab sweep also records, every N steps, the largest mean weight that a head gives to the previous "
     "token"},
    {"checkpoint_every", KEY_INT, AT(checkpoint_every), NULL, -1, 1000000000, "-1",
     "steps between checkpoints; -1: a tenth of all steps; 0: only at the end"},
    {"text", KEY_TEXT, AT(text), NULL, 0, 0, "",
     "training files, separated by spaces; for a classifier, each file is a class; for an encoder-decoder, lines of a "
     "source, a tab and a target"},
    {"tokenizer", KEY_TEXT, AT(tokenizer), NULL, 0, 0, "",
     "SentencePiece .model file of type unigram; its word pieces are the tokens; empty: tokens are bytes"},
    {"init_from", KEY_TEXT, AT(init_from), NULL, 0, 0, "",
     "begin with the arrays of this run or model that have the same name and shape, as relpos lab train --init does"},
    {"valid", KEY_TEXT, AT(valid), NULL, 0, 0, "", "held-out files, separated by spaces; empty: the end of text"},
    {"eval_lengths", KEY_TEXT, AT(eval_lengths), NULL, 0, 0, "",
     "lengths at which relpos lab sweep measures, separated by spaces; empty: length"},
    {"eval_position", KEY_TEXT, AT(eval_position), NULL, 0, 0, "",
     "terms that relpos lab sweep measures with instead of position, with the same weights, such as a rope with "
     "scaling"},
    {"valid_share", KEY_REAL, AT(valid_share), NULL, 0, 0.9, "0.1",
     "fraction of the text to hold out if valid names no file"},
    {"noise", KEY_REAL, AT(noise), NULL, 0, 0.9, "0",
     "above 0: train an encoder-decoder on plain text; this fraction of the bytes of a window is cut out of the source "
     "and becomes the target (T5: 0.15)"},
    {"noise_span", KEY_REAL, AT(noise_span), NULL, 1, 1000, "3", "mean length in bytes of the spans that noise cuts"},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

bool nn_config_key(int index, const char **name, const char **value, const char **help)
{
    if (index < 0 || index >= N_KEYS)
        return false;
    *name = keys[index].name;
    *value = keys[index].default_value;
    *help = keys[index].help;
    return true;
}

/* The keys that each preset sets. Presets reproduce the attention of well-known papers and models. */
static const struct preset {
    const char *name, *position, *encoder_position;
    int32_t layers, heads;
    double scale;
} presets[] = {
    {"log", "log,lambda=0.3", "", 0, 0, 0},                                   /* logarithmic decay */
    {"shaw", "relkey,left=16,right=16+relval,left=16,right=16", "", 0, 1, 0}, /* Shaw 2018: one table for all heads */
    {"t5", "t5,buckets=32,max_distance=128,bidirectional=0", "t5,buckets=32,max_distance=128", 1, 0,
     1}, /* Raffel 2020: one bias for all layers, scale 1 */
    {"real", "real,max_distance=128,sign=-1", "", 0, 1,
     0}, /* one table shared by all heads; positions may be fractional */
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* Parse a number that fills the whole text. This uses the parser of terms, which does not depend on the locale. */
static bool read_real(const char *value, double *x)
{
    char text[96], names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_term t;
    if (strlen(value) > 64 || strchr(value, ','))
        return false;
    snprintf(text, sizeof text, "log,lambda=%s", value);
    if (rp_term_parse(text, &t, names) != RP_OK)
        return false;
    *x = t.lambda;
    return true;
}

void nn_print_real(char to[NN_REAL_MAX], double x)
{
    rp_term t = rp_term_init(RP_TERM_LOG);
    char text[128];
    t.lambda = x;
    if (rp_term_print(&t, text, sizeof text) != RP_OK)
        snprintf(text, sizeof text, "log,lambda=0.0");
    snprintf(to, NN_REAL_MAX, "%.*s", NN_REAL_MAX - 1, strchr(text, '=') + 1);
}

static int set_key(nn_config *c, const key *k, const char *value, char err[NN_ERR_MAX])
{
    char *field = (char *)c + k->offset;
    if (k->type == KEY_TEXT) {
        if (strlen(value) >= NN_TEXT_MAX)
            return nn_fail(err, "%s: the value has %zu bytes; it must have at most %d (shorten it)", k->name,
                           strlen(value), NN_TEXT_MAX - 1);
        snprintf(field, NN_TEXT_MAX, "%s", value);
        return 0;
    }
    if (k->type == KEY_CHOICE) {
        int32_t n = 0;
        for (const char *from = k->choices; from; n++) {
            const char *end = strchr(from, '|');
            const size_t size = end ? (size_t)(end - from) : strlen(from);
            if (strlen(value) == size && strncmp(value, from, size) == 0) {
                memcpy(field, &n, sizeof n);
                return 0;
            }
            from = end ? end + 1 : NULL;
        }
        return nn_fail(err, "%s: \"%.40s\" is none of %s", k->name, value, k->choices);
    }
    double x;
    char *end;
    errno = 0;
    const long long n = strtoll(value, &end, 10);
    const bool integer = isdigit((unsigned char)value[*value == '-']) && *end == 0 && errno == 0;
    if (k->type == KEY_INT ? !integer : !read_real(value, &x))
        return nn_fail(err, "%s: \"%.40s\" is not %s (%g to %g)", k->name, value,
                       k->type == KEY_INT ? "an integer" : "a finite number", k->min, k->max);
    if (k->type == KEY_INT)
        x = (double)n;
    if (!(x >= k->min && x <= k->max))
        return nn_fail(err, "%s: %s is out of range (%g to %g)", k->name, value, k->min, k->max);
    const int64_t i = n;
    memcpy(field, k->type == KEY_INT ? (const void *)&i : (const void *)&x, 8);
    return 0;
}

/* Names that other programs give to keys. */
static const char *const other_names[][2] = {
    {"learning_rate", "lr"},    {"n_layers", "layers"},   {"n_layer", "layers"},
    {"num_layers", "layers"},   {"d_model", "width"},     {"n_embd", "width"},
    {"hidden_size", "width"},   {"n_heads", "heads"},     {"n_head", "heads"},
    {"num_heads", "heads"},     {"d_ff", "mlp"},          {"seq_len", "length"},
    {"max_length", "length"},   {"block_size", "length"}, {"batch_size", "batch"},
    {"max_steps", "steps"},     {"max_iters", "steps"},   {"vocab_size", "vocab"},
    {"warmup_steps", "warmup"}, {"grad_clip", "clip"},
};

int nn_config_set(nn_config *c, const char *name, const char *value, char err[NN_ERR_MAX])
{
    const char *best = NULL;
    size_t fewest = 4; /* suggest only keys with an edit distance below this */
    if (strcmp(name, "preset") == 0) {
        for (int n = 0; n < N_PRESETS; n++)
            if (strcmp(presets[n].name, value) == 0) {
                snprintf(c->position, NN_TEXT_MAX, "%s", presets[n].position);
                snprintf(c->encoder_position, NN_TEXT_MAX, "%s", presets[n].encoder_position);
                c->position_layers = presets[n].layers;
                c->position_heads = presets[n].heads;
                c->scale = presets[n].scale;
                return 0;
            }
        char list[64];
        for (int n = 0, used = 0; n < N_PRESETS && used < (int)sizeof list; n++)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", n ? ", " : "", presets[n].name);
        return nn_fail(err, "preset: \"%.40s\" is none of %s", value, list);
    }
    for (int n = 0; n < N_KEYS; n++)
        if (strcmp(keys[n].name, name) == 0)
            return set_key(c, &keys[n], value, err);
    for (int n = 0; n < N_KEYS; n++) {
        const size_t edits = rpi_edits(name, keys[n].name);
        if (edits < fewest && edits < strlen(keys[n].name))
            fewest = edits, best = keys[n].name;
    }
    for (size_t n = 0; n < sizeof other_names / sizeof *other_names; n++)
        if (strcmp(other_names[n][0], name) == 0)
            best = other_names[n][1];
    if (best)
        return nn_fail(err, "no key is called \"%.40s\" (did you mean %s?)", name, best);
    return nn_fail(err, "no key is called \"%.40s\" (relpos lab --help lists them)", name);
}

void nn_config_init(nn_config *c)
{
    char err[NN_ERR_MAX];
    memset(c, 0, sizeof *c);
    for (int n = 0; n < N_KEYS; n++)
        set_key(c, &keys[n], keys[n].default_value, err);
}

double nn_embedding_scale(const nn_config *c)
{
    return c->embedding_scale > 0 ? c->embedding_scale : sqrt((double)c->width);
}

double nn_embedding_init(const nn_config *c)
{
    if (c->embedding_init > 0)
        return c->embedding_init;
    if (c->embedding_scale == 0)
        return 1 / sqrt((double)c->width);
    return c->task == NN_ENCODER_DECODER && c->tied ? 1 : 0.02; /* 1, because the head then divides by sqrt(width) */
}

double nn_sinusoidal_scale(const nn_config *c)
{
    if (c->sinusoidal_scale > 0)
        return c->sinusoidal_scale;
    if (c->embedding_init > 0)
        return c->embedding_init * nn_embedding_scale(c);
    return c->embedding_scale > 0 ? 0.02 * c->embedding_scale : 1; /* Vaswani 2017, sections 3.4 and 3.5 */
}

int nn_config_check(const nn_config *c, char err[NN_ERR_MAX])
{
    if (c->width % c->heads != 0)
        return nn_fail(err, "width = %lld: it is not a multiple of heads, %lld (set width = %lld, for example)",
                       (long long)c->width, (long long)c->heads, (long long)((c->width / c->heads + 1) * c->heads));
    if (c->task == NN_ENCODER_DECODER && c->tokenizer[0])
        return nn_fail(err, "tokenizer: an encoder-decoder uses ByT5's tokens, which are bytes (remove the key)");
    if (c->task == NN_ENCODER_DECODER && c->vocab < NN_TOKENS)
        return nn_fail(err,
                       "vocab = %lld: an encoder-decoder needs at least %d, for 256 bytes and 3 special tokens (set "
                       "vocab = 384, as in ByT5)",
                       (long long)c->vocab, NN_TOKENS);
    if (c->log_scale != NN_LOG_NONE && (c->task != NN_DECODER || c->length < 2))
        return nn_fail(err, "log_scale: only decoders with length 2 or more support it (set log_scale = none)");
    if (c->random_positions > 0 && c->task == NN_ENCODER_DECODER)
        return nn_fail(err,
                       "random_positions = %lld: an encoder-decoder does not support them (set random_positions = 0)",
                       (long long)c->random_positions);
    if (c->random_positions > 0 && c->random_positions < c->length)
        return nn_fail(err,
                       "random_positions = %lld: it is below length, %lld (set random_positions = %lld, for example)",
                       (long long)c->random_positions, (long long)c->length, 4 * (long long)c->length);
    if (c->bos && c->task != NN_DECODER)
        return nn_fail(err, "bos = 1: only decoders support it (set bos = 0)");
    if (c->generate != NN_GENERATE_NONE) {
        if (c->task != NN_DECODER || c->tokenizer[0])
            return nn_fail(err, "generate: only decoders of bytes can train on generated lines (set generate = none)");
        if (c->generate_size > nn_generated_end(c->generate))
            return nn_fail(err, "generate_size = %lld: it is too large for this task (use at most %lld)",
                           (long long)c->generate_size, (long long)nn_generated_end(c->generate));
        if (c->length < nn_generated_window(c, c->generate_size))
            return nn_fail(err, "length = %lld: lines of generate_size %lld have %lld tokens (set length = %lld)",
                           (long long)c->length, (long long)c->generate_size,
                           (long long)nn_generated_window(c, c->generate_size),
                           (long long)nn_generated_window(c, c->generate_size));
    }
    if (c->warmup > c->steps)
        return nn_fail(err, "warmup = %lld: it is above steps, %lld (use a smaller warmup or more steps)",
                       (long long)c->warmup, (long long)c->steps);
    if (c->lr_min > c->lr)
        return nn_fail(err, "lr_min = %g: it is above lr, %g (use a lower lr_min or a higher lr)", c->lr_min, c->lr);
    return 0;
}

/* Remove a comment from a line. A # begins a comment only at the start of the line or value, or after a space, because
 * file names may contain #. */
static void cut_comment(char *line)
{
    const char *equals = strchr(line, '=');
    for (char *at = line; *at; at++)
        if (*at == '#' && (at == line || isspace((unsigned char)at[-1]) || at - 1 == equals)) {
            *at = 0;
            return;
        }
}

/* Remove white space at both ends of a text, in place. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

int nn_config_parse(nn_config *c, const char *name, const char *text, nn_other_key *other, void *context,
                    char err[NN_ERR_MAX])
{
    char line[2 * NN_TEXT_MAX], seen[128][40], why[NN_ERR_MAX];
    int n_seen = 0, number = 0;
    while (*text) {
        const size_t size = strcspn(text, "\n");
        number++;
        if (size >= sizeof line)
            return nn_fail(err, "%s:%d: the line has %zu bytes; it must have at most %zu (shorten it)", name, number,
                           size, sizeof line - 1);
        memcpy(line, text, size);
        line[size] = 0;
        text += size + (text[size] == '\n');
        cut_comment(line);
        char *left = trim(line), *equal = strchr(left, '=');
        if (!*left)
            continue;
        if (!equal)
            return nn_fail(err, "%s:%d: \"%.60s\" is not key = value (such as width = 256)", name, number, left);
        *equal = 0;
        left = trim(left);
        char *right = trim(equal + 1);
        for (int n = 0; n < n_seen; n++)
            if (strcmp(seen[n], left) == 0 && !(other && strcmp(left, "run") == 0))
                return nn_fail(err, "%s:%d: %.40s was given twice (remove one of the lines)", name, number, left);
        if (n_seen < 128)
            snprintf(seen[n_seen++], 40, "%.39s", left);
        const bool extra = other && (strncmp(left, "vary.", 5) == 0 || strncmp(left, "quick.", 6) == 0 ||
                                     strcmp(left, "seeds") == 0 || strcmp(left, "run") == 0);
        if (extra ? other(context, left, right, why) != 0 : nn_config_set(c, left, right, why) != 0)
            return nn_fail(err, "%s:%d: %.400s", name, number, why);
    }
    return 0;
}

void nn_config_print(const nn_config *c, char text[NN_PRINT_MAX])
{
    size_t used = 0;
    text[0] = 0;
    for (int n = 0; n < N_KEYS; n++) {
        const key *k = &keys[n];
        const char *field = (const char *)c + k->offset;
        char value[NN_TEXT_MAX];
        int64_t i;
        int32_t choice;
        double x;
        if (k->type == KEY_TEXT) {
            snprintf(value, sizeof value, "%s", field);
        } else if (k->type == KEY_INT) {
            memcpy(&i, field, sizeof i);
            snprintf(value, sizeof value, "%lld", (long long)i);
        } else if (k->type == KEY_REAL) {
            memcpy(&x, field, sizeof x);
            nn_print_real(value, x);
        } else {
            const char *from = k->choices;
            memcpy(&choice, field, sizeof choice);
            for (; choice > 0; choice--)
                from = strchr(from, '|') + 1;
            snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "|"), from);
        }
        used += (size_t)snprintf(text + used, NN_PRINT_MAX - used, "%s = %s\n", k->name, value);
    }
}
