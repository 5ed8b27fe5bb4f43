/* cache.c -- keys and values of the tokens so far.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <stdlib.h>

rp_status rp_layer_cache_create(rp_layer_cache **cache, const rp_layer *layer, int64_t batch, int64_t capacity)
{
    if (cache)
        *cache = NULL;
    if (!cache || !layer)
        return layers_fail(RP_E_ARG, "cache or layer is NULL; pass both");
    if (batch < 0 || capacity < 0)
        return layers_fail(RP_E_RANGE, "batch is %lld and capacity is %lld; both must be 0 or more", (long long)batch,
                           (long long)capacity);
    const int64_t k[] = {batch, capacity, layer->out[RP_K]}, v[] = {batch, capacity, layer->out[RP_V]};
    const int64_t n_k = layers_count(3, k), n_v = layers_count(3, v);
    if (n_k < 0 || n_v < 0)
        return layers_fail(RP_E_OVERFLOW, "a cache of %lld sequences of %lld tokens does not fit in 63 bits",
                           (long long)batch, (long long)capacity);
    rp_layer_cache *c = calloc(1, sizeof *c);
    if (!c)
        return layers_no_memory("a cache");
    *c = (rp_layer_cache){.ops = layer->ops, .batch = batch, .capacity = capacity, .width_k = k[2], .width_v = v[2]};
    c->k = malloc((size_t)n_k * layer->ops->size + 1);
    c->v = malloc((size_t)n_v * layer->ops->size + 1);
    if (!c->k || !c->v) {
        rp_layer_cache_destroy(c);
        return layers_no_memory("a cache");
    }
    *cache = c;
    return RP_OK;
}

void rp_layer_cache_destroy(rp_layer_cache *cache)
{
    if (cache) {
        free(cache->k);
        free(cache->v);
    }
    free(cache);
}

int64_t rp_layer_cache_length(const rp_layer_cache *cache)
{
    return cache ? cache->length : 0;
}

void rp_layer_cache_truncate(rp_layer_cache *cache, int64_t length)
{
    if (cache && length >= 0 && length < cache->length)
        cache->length = length;
}
