/* pipelines.c -- how image and video models pad the text for their text encoder, as in the pipelines of diffusers 0.42.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <string.h>

/* In every pipeline, a text is cut or padded to `length` tokens. If `attend`, the text encoder attends to the padding.
 * Otherwise the model ignores the padding, by its mask or because the pipeline sets it to zero; here it is zero.
 *
 * Chroma and HiDream are not in the table: they use hidden states of padding that does not take part in attention. */
static const cli_t5_pipeline pipelines[] = {
    {"flux", 512, true, RP_F32},          /* flux/pipeline_flux.py, _get_t5_prompt_embeds */
    {"sd3", 256, true, RP_F32},           /* stable_diffusion_3/pipeline_stable_diffusion_3.py, the same function */
    {"cogvideox", 226, true, RP_F32},     /* cogvideo/pipeline_cogvideox.py, the same function */
    {"ltx", 128, true, RP_BOOL},          /* ltx/pipeline_ltx.py, the same function */
    {"mochi", 256, false, RP_BOOL},       /* mochi/pipeline_mochi.py, the same function */
    {"wan", 512, false, RP_F32},          /* wan/pipeline_wan.py, __call__: 512; the same function: zeros */
    {"cosmos", 512, false, RP_F32},       /* cosmos/pipeline_cosmos_text2world.py, the same function: zeros */
    {"pixart", 300, false, RP_I64},       /* pixart_alpha/pipeline_pixart_sigma.py, encode_prompt */
    {"pixart-alpha", 120, false, RP_I64}, /* pixart_alpha/pipeline_pixart_alpha.py, encode_prompt */
    {"allegro", 512, false, RP_I64},      /* allegro/pipeline_allegro.py, encode_prompt */
    {"auraflow", 256, false, RP_I64},     /* aura_flow/pipeline_aura_flow.py, encode_prompt: zeros */
};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

int cli_t5_find_pipeline(const char *name, const cli_t5_pipeline **found)
{
    char safe[64], all[256] = "";
    for (int k = 0; k < PIPELINES; k++) {
        if (strcmp(name, pipelines[k].name) == 0) {
            *found = &pipelines[k];
            return CLI_OK;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k == 0 ? "" : ", ", pipelines[k].name);
    }
    return cli_error(CLI_USAGE, "--for: the model \"%s\" is unknown (use %s; or --pad-to and --attend-padding)",
                     io_safe(safe, sizeof safe, name), all);
}
