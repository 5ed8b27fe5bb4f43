#!/bin/sh
# t5.sh -- test the commands of relpos t5 on tiny checkpoints, their errors, and the manual page
#
#     tests/cli/t5.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
data=tests/t5/data
source='5 9 2 4 4 7 1'

ok t5 --help
has '^relpos t5 -- ' '^Example:' '^  generate  *[a-z]' '^  bench  *[a-z]'
for name in generate encode proteins score tokenize info pack explain verify bench; do
    ok t5 "$name" --help
    has "^relpos t5 $name -- " "^Usage: relpos t5 $name " '^      --help  '
    sed '1,/^Options:/d' "$T/out" | grep -oE -- '^ +(-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' >>"$T/options"
    refused 2 'no option is called --no-such-thing' t5 "$name" --no-such-thing
    refused 2 'no model was given' t5 "$name"
done
grep -oE -- '^(\*-[a-z]\*, )?\*--[a-z0-9-]+\*' docs/man/relpos-t5.1.scd | grep -oE -- '--[a-z0-9-]+' | sort -u >"$T/page"
check 'options of the help texts and of the page' '' "$(sort -u "$T/options" | diff - "$T/page")"

# generate: lines, beams and batches. The text does not depend on the batch or the number of threads.
ok t5 generate $data/v11 --tokens --text "$source" --max-new-tokens 6
cp "$T/out" "$T/greedy"
printf '%s\n3\n\n%s\n' "$source" "$source" >"$T/lines"
for batch in 1 2 4; do
    for threads in 1 2; do
        ok t5 generate $data/v11 "$T/lines" --tokens --max-new-tokens 6 --batch $batch --threads $threads
        check 'one line per input line' "4" "$(wc -l <"$T/out" | tr -d ' ')"
        check 'the first' "$(cat "$T/greedy")" "$(sed -n 1p "$T/out")"
        check 'the last' "$(cat "$T/greedy")" "$(sed -n 4p "$T/out")"
    done
done
ok t5 generate $data/v11 --tokens --text "$source" --max-new-tokens 6 --beams 3 --return 2 --scores
has '^-[0-9.]+	[0-9 ]+$'
check 'two results' 2 "$(wc -l <"$T/out" | tr -d ' ')"
ok t5 generate $data/v11 --tokens --text "$source" --sample --seed 3 --max-new-tokens 6
cp "$T/out" "$T/sample"
ok t5 generate $data/v11 --tokens --text "$source" --sample --seed 3 --max-new-tokens 6 --batch 4
same 'one seed, one line' "$T/sample" "$T/out"
ok t5 generate $data/v11 --tokens --text "$source" --begin '7 8' --max-new-tokens 2
has '^7 8 [0-9]+( [0-9]+)?$'
ok t5 generate $data/byt5 --text 'good morning' --max-new-tokens 4 # ByT5 needs no tokenizer file
run t5 generate $data/v11 --tokens --text "$source" --stats
run t5 generate $data/v11 --tokens --text "$source" --max-new-tokens 1 --stats
check 'one token' 1 "$(grep -c '^1 line, 1 token in ' "$T/err")"
run t5 generate $data/v11 --tokens --text "$source" --stats
check 'speed on standard error' 1 "$(grep -c "tokens per second, weights .* of the memory's bandwidth" "$T/err")"
for more in '--beams 2 --return 2' '--beams 2' '--sample --return 2' '--batch 2'; do
    # shellcheck disable=SC2086
    run t5 generate $data/v11 --tokens --text "$source" --stats $more
    check "no bandwidth with $more" '1 0' "$(grep -c 'tokens per second' "$T/err") $(grep -c 'bandwidth' "$T/err")"
done
ok t5 generate $data/v11 --tokens --text "${source#5 }" --prefix 5 --max-new-tokens 6
same 'numbers of --prefix' "$T/greedy" "$T/out"
ok t5 encode $data/encoder --tokens --text "${source#5 }" --prefix 5 -o "$T/made/prefix.npz"
ok t5 encode $data/encoder --tokens --text "$source" -o "$T/made/whole.npz"
same 'numbers of --prefix' "$T/made/whole.npz" "$T/made/prefix.npz"
for draft in '--exact' '--draft int8'; do
    run t5 generate $data/v11 "$T/lines" --tokens --max-new-tokens 40 --scores --type f32
    cp "$T/out" "$T/plain"
    # shellcheck disable=SC2086
    run t5 generate $data/v11 "$T/lines" --tokens --max-new-tokens 40 --scores --type f32 --stats $draft
    same "the same with $draft" "$T/plain" "$T/out"
    check 'acceptance on standard error' 1 "$(grep -c 'proposed, [1-9][0-9]* accepted ([0-9]* %), [1-9][0-9]* passes' "$T/err")"
done

# the model included with relpos gives the results in its model card
printf '%s\n' attention phonetics knowingly philosopher encoder >"$T/words"
printf '%s\n' 'AH T EH N SH AH N' 'F AH N EH T IH K S' 'N OW IH NG L IY' 'F IH L AA S AH F ER' 'EH N K OW D ER' >"$T/spoken"
for type in bf16 f32; do
    ok t5 generate lab/model/phonemes "$T/words" --type $type
    same "five words in $type" "$T/spoken" "$T/out"
done
check 'the file matches the card' "$(sed -n 's/^| SHA-256 of model.safetensors | \(.*\) |$/\1/p' lab/model/README.md)" \
    "$(sha256sum lab/model/phonemes/model.safetensors | cut -d' ' -f1)"

# encode: hidden states, vectors, padding
ok t5 encode $data/encoder "$T/lines" --tokens -o "$T/made/h.npz"
ok t5 encode $data/encoder "$T/lines" --tokens -o "$T/made/v.safetensors" --pool mean --normalize
ok t5 encode $data/encoder "$T/lines" --tokens -o "$T/made/p.npz" --pad-to 4 --attend-padding
# --for: the padding of an image model, with the names of its pipeline
printf '%s\n3\n' "$source" >"$T/prompts"
for model in 'flux 512 attend' 'sd3 256 attend' 'wan 512' 'pixart 300 mask'; do
    # shellcheck disable=SC2086
    set -- $model
    ok t5 encode $data/encoder "$T/prompts" --tokens --for "$1" -o "$T/made/for.safetensors"
    # shellcheck disable=SC2046
    ok t5 encode $data/encoder "$T/prompts" --tokens --pad-to "$2" $([ "${3-}" = attend ] && echo --attend-padding) -o "$T/made/pad.safetensors"
    check "$1: the same numbers" "$(tail -c $((2 * $2 * 64)) "$T/made/pad.safetensors" | cksum)" "$(tail -c $((2 * $2 * 64)) "$T/made/for.safetensors" | cksum)"
    check "$1: names" "$([ "${3-}" = mask ] && echo '"prompt_attention_mask" ')\"prompt_embeds\" " \
        "$(head -c 300 "$T/made/for.safetensors" | grep -aoE '"[a-z_]*":\{' | tr -d ':{' | sort | tr '\n' ' ')"
done
refused 2 '--for: the model "dall" is unknown \(use flux, sd3, .*, auraflow; or' t5 encode $data/encoder --tokens --text 3 --for dall -o "$T/made/x.npz"
refused 2 '--for: it writes hidden states' t5 encode $data/encoder --tokens --text 3 --for flux --pool mean -o "$T/made/x.npz"
for pool in mean first last; do # with one token, all pools agree; with four tokens, they differ
    ok t5 encode $data/encoder --tokens --text 5 --pool $pool -o "$T/made/$pool.1.npz"
    ok t5 encode $data/encoder --tokens --text '5 9 2 4' --pool $pool -o "$T/made/$pool.4.npz"
done
check 'pools' '1 3' "$(cksum "$T"/made/*.1.npz | cut -d ' ' -f 1 | sort -u | wc -l) $(cksum "$T"/made/*.4.npz | cut -d ' ' -f 1 | sort -u | wc -l)"
# files of torch.save give the same bytes as .safetensors
ok t5 encode $data/bin "$T/lines" --tokens -o "$T/made/bin.npz"
same 'pytorch_model.bin in shards' "$T/made/h.npz" "$T/made/bin.npz"
ok t5 info $data/bin
mkdir "$T/made/bin"
cp $data/bin/*.bin $data/bin/config.json "$T/made/bin"
mv "$T/made/bin/pytorch_model-00001-of-00002.bin" "$T/made/bin/pytorch_model.bin"
refused 1 'at least 12 tensors, but there are 11' t5 info "$T/made/bin"
head -c 5000 $data/bin/pytorch_model-00001-of-00002.bin >"$T/made/bin/pytorch_model.bin"
refused 1 'pytorch_model.bin: cut short: ' t5 info "$T/made/bin"
cp tests/io/data/torch_old.pt "$T/made/bin/pytorch_model.bin"
refused 1 'pytorch_model.bin: it was written by PyTorch before 1.6.*load it with torch.load' t5 info "$T/made/bin"
refused 1 'the model was read from this file' t5 pack $data/bin -o $data/bin/pytorch_model.bin.index.json
# single files without a config.json: Wan's names; scaled fp8 in a file with other models and a tokenizer
mkdir "$T/made/umt5"
sed 's/"relative_attention_max_distance": 12/"relative_attention_max_distance": 128/' $data/umt5/config.json >"$T/made/umt5/config.json"
cp $data/umt5/model.safetensors "$T/made/umt5"
ok t5 encode "$T/made/umt5" "$T/lines" --tokens -o "$T/made/umt5.npz"
ok t5 encode $data/single/wan.pth "$T/lines" --tokens -o "$T/made/wan.npz"
same "Wan's names" "$T/made/umt5.npz" "$T/made/wan.npz"
for kind in plain scaled; do ok t5 encode $data/single/$kind.safetensors "$T/lines" --tokens -o "$T/made/$kind.npz" --type f32; done
same 'scaled fp8' "$T/made/plain.npz" "$T/made/scaled.npz"
ok t5 info $data/single/scaled.safetensors
has '^model        t5, ' '^layers       2 \+ 0, width 16, 3 heads of 8$' '^feed-forward 24, gated gelu_new$' ', with a tokenizer;'
prints '19 14 11 1' t5 tokenize $data/single/scaled.safetensors --text 'M K T'
run t5 tokenize $data/single/wan.pth --text 'M K T'
says 'its file contains no tokenizer; --tokenizer takes a folder or a file with one'
for tokenizer in added added/spiece.model; do
    prints '19 14 11 1' t5 tokenize $data/single/plain.safetensors --text 'M K T' --tokenizer tests/tokenizer/data/$tokenizer
done
refused 1 'the tokenizer does not exist' t5 tokenize $data/single/plain.safetensors --text 'M K T' --tokenizer "$T/nowhere"
ok t5 pack $data/single/scaled.safetensors -o "$T/made/scaled.relpos"
prints '19 14 11 1' t5 tokenize "$T/made/scaled.relpos" --text 'M K T'
refused 1 'the model was read from this file' t5 pack $data/single/wan.pth -o $data/single/wan.pth
refused 1 'not a file of .relpos t5 pack., and it has no T5 encoder' t5 info tests/io/data/torch.pt
data_of() # data_of FILE NAME: print the offset of the array's data
{
    begin=$(grep -aoE "\"$2\":[^}]*\"data_offsets\":\[[0-9]+" "$1" | sed 's/.*\[//')
    echo $((8 + $(od -A n -t u8 -N 8 "$1") + begin))
}
ok t5 encode $data/encoder --tokens --text '5 9 2 4' -o "$T/made/rows.safetensors"
width=$("$program" t5 info $data/encoder --json | sed 's/.*"d_model": \([0-9]*\).*/\1/')
row=0
for pool in first last; do
    ok t5 encode $data/encoder --tokens --text '5 9 2 4' --pool $pool -o "$T/made/$pool.safetensors"
    check "the $pool row" '' "$(cmp -n $((4 * width)) -i "$(data_of "$T/made/rows.safetensors" hidden | awk -v r=$row -v w="$width" '{print $1 + 4 * w * r}'):$(data_of "$T/made/$pool.safetensors" vectors)" "$T/made/rows.safetensors" "$T/made/$pool.safetensors" 2>&1)"
    row=3
done

# the commands of the guide to text encoders
sed -n '/t5.sh runs these commands/,/^```$/s/^relpos //p' docs/text-encoders.md >"$T/commands"
check 'commands of the guide' 2 "$(wc -l <"$T/commands" | tr -d ' ')"
while read -r line; do
    # shellcheck disable=SC2046
    run $(printf '%s' "$line" | sed "s#-o #-o $T/made/#; s#encode tiny.relpos#encode $T/made/tiny.relpos#; s#'5 6 7 1'#5#")
    check 'exit code' 0 "$code"
done <"$T/commands"
check 'arrays for Flux' 1 "$(head -c 200 "$T/made/prompt.safetensors" | grep -c '"prompt_embeds":{"dtype":"F32","shape":\[1,512,16\]')"

# JSON lines have the same vectors; a file of many lines does not need more memory than a window of them
ok t5 encode $data/encoder "$T/lines" --tokens -o "$T/made/v.jsonl" --pool mean
check 'a JSON object per line' "$(wc -l <"$T/lines")" "$(grep -c '^{"tokens": [0-9]*, "vector": \[-\?[0-9].*\]}$' "$T/made/v.jsonl")"
ok t5 encode $data/encoder --tokens --text '5 9' -o "$T/made/h.jsonl"
check 'hidden states of two tokens' 1 "$(grep -c '^{"tokens": 2, "hidden": \[\[[^]]*\], \[[^]]*\]\]}$' "$T/made/h.jsonl")"
refused 2 'use .npz, .safetensors or .jsonl' t5 encode $data/encoder --tokens --text 5 -o "$T/made/never.txt"

# generate: options that forbid a repeated token or pair of tokens, and the options that stop beams
for n in 1 2; do
    ok t5 generate $data/v11 --tokens --text '5 9 2 4' --max-new-tokens 12 --min-new-tokens 12 --no-repeat-ngram $n
    check "no $n tokens twice" '' "$(awk -v n=$n '{for (x = 1; x + n - 1 <= NF; x++) print n == 1 ? $x : $x " " $(x + 1)}' "$T/out" | sort | uniq -d)"
done
ok t5 generate $data/v11 --tokens --text '5 9 2 4' --max-new-tokens 12 --min-new-tokens 12
check 'tokens that appear twice' '17 23 58 ' "$(tr ' ' '\n' <"$T/out" | sort | uniq -d | tr '\n' ' ')"
for when in true false never; do
    ok t5 generate $data/v11 --tokens --text '5 9 2 4' --max-new-tokens 4 --beams 2 --early-stopping $when
done
ok t5 generate $data/byt5 --text 'good morning' --max-new-tokens 4 --begin ab
has '^ab'

# score, tokenize, info, pack, bench
printf '%s\t%s\n' "$source" '3 4 1' >"$T/pair"
ok t5 score $data/v11 "$T/pair" --tokens --each
has '^-[0-9.]+	3	-[0-9.]+ -[0-9.]+ -[0-9.]+$'
cp "$T/out" "$T/score"
ok t5 score $data/v11 "$T/pair" --tokens --each --json
check 'the same in JSON' "$(cat "$T/score")" "$(sed -E 's/^[{]"score": ([^,]*), "tokens": ([0-9]+), "each": \[(.*)\][}]$/\1	\2	\3/; s/, / /g' "$T/out")"
ok t5 score $data/v11 "$T/pair" --tokens --json
has '^[{]"score": -[0-9.]+, "tokens": 3[}]$'
prints '106 108 1' t5 tokenize $data/byt5 --text gi
prints 'gi' t5 tokenize $data/byt5 --decode --text '106 108 1'
ok t5 info $data/switch
has 'switch_transformers' '3 experts'
ok t5 info $data/encoder --json
has '"kind": "t5"' '"decoder_layers": 0' '"type": "bf16"'
ok t5 pack $data/v11 -o "$T/made/packed"
ok t5 score "$T/made/packed" "$T/pair" --tokens --each
same 'packed' "$T/score" "$T/out"
ok t5 info "$T/made/packed"
has '^packed       from v11, whose tensors have the checksum [0-9a-f]{16}$'
ok t5 info "$T/made/packed" --json
has '"packed": 2, "source": "v11", "source_checksum": "[0-9a-f]{16}"}$'
ok t5 verify "$T/made/packed"
has '^f32   checksum of the file        correct$' '^8 checks, 0 failed'
cp "$T/made/packed" "$T/made/changed"
printf '\001' | dd of="$T/made/changed" bs=1 seek=$(($(wc -c <"$T/made/changed") - 300)) conv=notrunc 2>/dev/null
run t5 verify "$T/made/changed"
check 'exit code' 1 "$code"
has '^f32   checksum of the file        wrong   FAILED$'
# tokenize works without weights; commands that compute fail without them
mkdir -p "$T/made/text"
sed 's/"vocab_size": 64/"vocab_size": 910/' $data/v11/config.json >"$T/made/text/config.json"
cp tests/tokenizer/data/t5.json "$T/made/text/tokenizer.json"
as_it_is='{"tokenizer_class": "TokenizersBackend"}' # the rules of the file are used
printf '%s\n' "$as_it_is" >"$T/made/text/tokenizer_config.json"
ok t5 tokenize "$T/made/text" --text 'the text'
refused 1 'the model accepts only token numbers' t5 tokenize $data/v11 --text gi

# a tokenizer.json is packed as arrays, and packing the result again gives the same bytes
mkdir "$T/made/words"
cp $data/v11/config.json $data/v11/model.safetensors "$T/made/words"
printf '%s\n' "$as_it_is" >"$T/made/words/tokenizer_config.json"
refused_text='the model accepts only token numbers: .*tokenizer.json: it has 900 pieces, but the embedding has 64 rows \(use the tokenizer of this model\)'
cp tests/tokenizer/data/t5.json "$T/made/words/tokenizer.json"
run t5 tokenize "$T/made/words" --text the
says "$refused_text"
run t5 pack "$T/made/words" -o "$T/made/once"
says 'it has 900 pieces, but the embedding has 64 rows .*; --no-tokenizer packs the model without it'
ok t5 pack "$T/made/words" -o "$T/made/once" --no-tokenizer
run t5 tokenize "$T/made/once" --text the
says 'accepts only token numbers: it was packed without a tokenizer'
rm "$T/made/once"
refused 2 '--no-tokenizer: --tokenizer was given too' t5 pack "$T/made/words" -o "$T/made/once" --no-tokenizer --tokenizer "$T/made/words"
ok t5 generate "$T/made/words" --tokens --text "$source" --max-new-tokens 3 # --tokens needs no tokenizer
printf '{"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0]' \
    >"$T/made/words/tokenizer.json"
for piece in ' ' , a h i s t w x e 'the ' as; do printf ',["%s",-%d.5]' "$piece" ${#piece}; done >>"$T/made/words/tokenizer.json"
printf ']}}\n' >>"$T/made/words/tokenizer.json"
ok t5 tokenize "$T/made/words" --text 'the text, as it was'
cp "$T/out" "$T/words"
ok t5 pack "$T/made/words" -o "$T/made/once"
ok t5 pack "$T/made/once" -o "$T/made/twice"
same 'packed twice' "$T/made/once" "$T/made/twice"
ok t5 tokenize "$T/made/twice" --text 'the text, as it was'
same 'words of a packed tokenizer' "$T/words" "$T/out"
check 'a packed file does not have the pieces as JSON' 0 "$(grep -c '"vocab":\[\[' "$T/made/twice")"

# tokens added to a spiece.model are read as in transformers, also from a packed file
mkdir "$T/made/added"
cp $data/v11/config.json $data/v11/model.safetensors tests/tokenizer/data/added/*.json tests/tokenizer/data/added/spiece.model "$T/made/added"
cut -f 1 tests/tokenizer/data/added/cases.tsv >"$T/added"
cut -f 2 tests/tokenizer/data/added/cases.tsv >"$T/added.tokens"
ok t5 pack "$T/made/added" -o "$T/made/added.packed"
ok t5 pack "$T/made/added.packed" -o "$T/made/added.twice"
same 'packed twice' "$T/made/added.packed" "$T/made/added.twice"
ok t5 verify "$T/made/added.packed" --text 'M K T'
for model in added added.packed; do
    ok t5 tokenize "$T/made/$model" "$T/added"
    same "added tokens of $model" "$T/added.tokens" "$T/out"
    prints 'M Kac' t5 tokenize "$T/made/$model" --decode --text '54 19 14 32 51 1' # <sep> is a special token, so the text omits it
    prints '<sep> M Kac</s>' t5 tokenize "$T/made/$model" --decode --keep-special-tokens --text '54 19 14 32 51 1'
done
refused 2 '--keep-special-tokens: only --decode prints text' t5 tokenize "$T/made/added" --keep-special-tokens --text M
refused 2 '--keep-special-tokens: --tokens prints the numbers of all tokens' t5 generate $data/byt5 --keep-special-tokens --tokens --text 5
for more in '' '--beams 2'; do # as it is written, and at the end
    ok t5 generate $data/byt5 --text 'a <extra_id_0> b' --begin '<extra_id_0>' --max-new-tokens 8 --keep-special-tokens $more
    cp "$T/out" "$T/special"
    ok t5 tokenize $data/byt5 --text 'a <extra_id_0> b'
    ok t5 generate $data/byt5 --tokens --text "$(cat "$T/out")" --begin 259 --max-new-tokens 8 $more
    ok t5 tokenize $data/byt5 --decode --keep-special-tokens --text "$(cat "$T/out")"
    same "special tokens are kept $more" "$T/special" "$T/out"
    has '^<extra_id_0>'
done
echo '{"<AA2fold>": 33}' >"$T/made/added/added_tokens.json"
run t5 tokenize "$T/made/added" --text M
says 'the model accepts only token numbers: added_tokens.json: "<AA2fold>" has the number 33; new tokens must have consecutive numbers, and the next is 32'
refused 2 '--draft: the type "f32" is unknown' t5 generate $data/v11 --tokens --text 3 --draft f32
refused 1 'draft type int4 with weights of int4' t5 generate $data/v11 --tokens --text 3 --type int4 --exact
ok t5 bench $data/v11 --source 8 --new 9 --repeat 1 --exact
has '^draft .* passes$'
ok t5 bench $data/v11 --source 8 --new 4 --repeat 1 --json
has '"tokens_per_second": [0-9.]+'
ok t5 bench $data/v11 --source 8 --new 0 --repeat 1 --json
has '"tokens_per_second": null, "bytes_per_second": null'
for turn in 1 2 3 4 5 6 7 8; do # on a busy machine, the measured time of a decoding step may be negative; then no speed is printed
    ok t5 bench $data/v11 --source 200 --new 1 --repeat 1 --json
    check "turn $turn: no negative speed" 0 "$(grep -c ': -' "$T/out")"
    ok t5 bench $data/v11 --source 200 --new 1 --repeat 1
    check "turn $turn: no negative speed" 0 "$(grep -cE ' -[0-9]' "$T/out")"
done

# bench reports at most 100 % of the memory's bandwidth, or says that the weights are in a cache, as on most machines
ok t5 bench lab/model/phonemes --source 4 --new 100 --repeat 3 --threads 1 --type f32
has '^weights .* ([0-9]{1,2}|100) % of the memory.s [0-9.]+ GB/s$|^weights .* more than the memory.s [0-9.]+ GB/s: they are in a cache'
run t5 generate lab/model/phonemes "$T/words" --threads 1 --type f32 --stats
says ', weights [0-9.]+ GB/s: (([0-9]{1,2}|100) % of the memory.s bandwidth|more than the memory.s bandwidth, so they are in a cache, or not all are read)$'

# lines are UTF-8: a byte order mark before the first is not text, and UTF-16 and UTF-32 are refused
printf 'one\ttwo\n\303\251\ttwo\n' >"$T/utf8"
printf '\357\273\277one\ttwo\n\303\251\ttwo\n' >"$T/marked"
printf '\357\273\277' >"$T/mark"
for encoding in UTF-16 UTF-16BE UTF-16LE UTF-32LE; do
    iconv -f UTF-8 -t $encoding "$T/utf8" >"$T/$encoding"
done
printf '\376\377\000o\000n\000e' >"$T/BE"
printf '\377\376\000\001' >"$T/LE"
printf 'one\ttwo\n\000o\n' >"$T/later"
printf '\377\376' >"$T/only"
for words in tokenize 'generate --max-new-tokens 3' "encode -o $T/made/hidden.jsonl" score; do
    verb=${words%% *} options=${words#"$verb"}
    # shellcheck disable=SC2086
    {
        ok t5 $verb $data/byt5 "$T/utf8" $options
        [ $verb = encode ] && mv "$T/made/hidden.jsonl" "$T/out"
        cp "$T/out" "$T/without"
        ok t5 $verb $data/byt5 "$T/marked" $options
        [ $verb = encode ] && mv "$T/made/hidden.jsonl" "$T/out"
        same "$verb with a byte order mark" "$T/without" "$T/out"
        for encoding in UTF-16 UTF-16BE UTF-16LE UTF-32LE BE LE only; do
            refused 1 'line 1: it (begins with the byte order mark FF FE or FE FF|has a NUL byte), as text in UTF-16 .*iconv' \
                t5 $verb $data/byt5 "$T/$encoding" $options
        done
        run t5 $verb $data/byt5 $options <"$T/later"
        check 'exit code' 1 "$code"
        says 'line 2: it has a NUL byte, as text in UTF-16'
    }
done
ok t5 tokenize $data/byt5 "$T/mark"
check 'no lines' 0 "$(wc -c <"$T/out" | tr -d ' ')"
printf '\200\n' >"$T/raw" # ByT5 takes any other bytes
prints '131 1' t5 tokenize $data/byt5 "$T/raw"

# a full disk while lines are written to a file
yes '5 6 7 8' | head -n 200 >"$T/long"
(
    ulimit -f 1
    trap '' XFSZ
    "$program" t5 generate $data/v11 "$T/long" --tokens --max-new-tokens 6 -o "$T/made/full.txt" >"$T/out" 2>"$T/err"
)
code=$? command='ulimit -f 1; relpos t5 generate'
check 'a file at its size limit' '1 1 0' "$code $(grep -c 'full.txt: cannot be written: File too large' "$T/err") $(ls "$T/made" | grep -c full)"
# generate -o writes the same lines to a file
ok t5 generate $data/v11 "$T/lines" --tokens --max-new-tokens 6 -o "$T/made/lines.txt"
check 'nothing is printed' 0 "$(wc -c <"$T/out" | tr -d ' ')"
check 'the lines' "$(cat "$T/greedy")" "$(sed -n 1p "$T/made/lines.txt")"
check 'all lines' 4 "$(wc -l <"$T/made/lines.txt" | tr -d ' ')"

# a file from which the model was read is never overwritten, under any name
own=$T/made/own
mkdir "$own" "$T/made/shards"
cp $data/v11/config.json $data/v11/generation_config.json $data/v11/model.safetensors "$own"
cp "$T/made/packed" "$T/made/packed.safetensors"
ln -s "$own/model.safetensors" "$T/made/link.safetensors"
ln -s "$own/model.safetensors" "$T/made/link.png"
for target in "$own/model.safetensors" "$own/config.json" "$own/generation_config.json" "$T/made/link.safetensors"; do
    refused 1 'the model was read from this file' t5 pack "$own" -o "$target"
    refused 1 'the model was read from this file' t5 generate "$own" --tokens --text 5 -o "$target"
done
refused 1 'the model was read from this file' t5 encode "$own" --tokens --text 5 -o "$own/model.safetensors"
refused 1 'the model was read from this file' t5 encode "$T/made/packed.safetensors" --tokens --text 5 -o "$T/made/packed.safetensors"
refused 1 'the model was read from this file' t5 explain "$own" 5 --tokens -o "$T/made/link.png"
cp $data/encoder/*.json $data/encoder/*-of-*.safetensors "$T/made/shards"
for target in model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json; do
    run t5 pack "$T/made/shards" -o "$T/made/shards/$target"
    check "$target" "1 1" "$code $(grep -c 'the model was read from this file' "$T/err")"
    same "$target" $data/encoder/$target "$T/made/shards/$target"
done
same 'the weights' $data/v11/model.safetensors "$own/model.safetensors"
same 'the configuration' $data/v11/config.json "$own/config.json"
ok t5 pack "$own" -o "$own/another" # another file in the same folder is allowed

# settings MODEL KEYS: copy a model to $T/made/set, with these keys in its generation settings
settings() {
    rm -rf "$T/made/set"
    mkdir "$T/made/set"
    cp "$data/$1/config.json" "$data/$1/model.safetensors" "$T/made/set"
    printf '{"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, %s}\n' "$2" >"$T/made/set/generation_config.json"
}

# settings that forbid tokens, and one that forces a token
prints '4 56 21' t5 generate $data/mt5 --tokens --text "$source" --max-new-tokens 3
ok t5 generate $data/mt5 --tokens --text "$source" --max-new-tokens 3 --suppress-tokens '4, 56'
check 'neither is written' 0 "$(grep -cE '(^| )(4|56)( |$)' "$T/out")"
ok t5 generate $data/mt5 --tokens --text "$source" --max-new-tokens 3 --begin-suppress-tokens 4
check 'it is not the first' 0 "$(grep -c '^4 ' "$T/out")"
ok t5 generate $data/mt5 --tokens --text "$source" --max-new-tokens 3 --forced-bos-token 7
has '^7 [0-9]+ [0-9]+$'
settings mt5 '"suppress_tokens": [4]'
prints '4 56 21' t5 generate "$T/made/set" --tokens --text "$source" --max-new-tokens 3 --suppress-tokens ''

# settings of generation_config.json: the number of results is limited to the number of --beams; stop texts; a forced first
# token with several beams
settings v11 '"num_beams": 4, "num_return_sequences": 4'
for beams in 1 2 4 5; do
    ok t5 generate "$T/made/set" --tokens --text "$source" --max-new-tokens 6 --beams $beams
    check "results of $beams beams" "$((beams < 4 ? beams : 4))" "$(wc -l <"$T/out" | tr -d ' ')"
done
for keys in '"num_return_sequences": 3' '"num_return_sequences": 3, "num_beams": 2'; do # as in transformers
    settings v11 "$keys"
    refused 1 'generation_config.json: "num_return_sequences" is 3' t5 generate "$T/made/set" --tokens --text "$source"
    ok t5 generate "$T/made/set" --tokens --text "$source" --return 1
    ok t5 generate "$T/made/set" --tokens --text "$source" --beams 1
    ok t5 generate "$T/made/set" --tokens --text "$source" --beams 1 --sample
    check 'three samples' 3 "$(wc -l <"$T/out" | tr -d ' ')"
done
settings v11 '"num_beams": 4, "num_return_sequences": 4'
refused 2 '--exact: it needs one beam, but the search has 4' t5 generate "$T/made/set" --tokens --text "$source" --exact
ok t5 generate $data/byt5 --text hello --max-new-tokens 40
cp "$T/out" "$T/whole"
ok t5 generate $data/byt5 --text hello --max-new-tokens 40 --stop E
cp "$T/out" "$T/stopped"
check 'it ends earlier' 1 "$(cmp -s "$T/whole" "$T/stopped"; echo $?)"
for stops in '"E"' '["E"]' '["no such text", "E"]'; do
    settings byt5 "\"stop_strings\": $stops"
    ok t5 generate "$T/made/set" --text hello --max-new-tokens 40
    same "stop_strings $stops" "$T/stopped" "$T/out"
done
ok t5 explain "$T/made/set" hello --part cross # explain ignores stop texts
settings v11 '"stop_strings": "E"'
refused 1 'stop texts need a tokenizer' t5 generate "$T/made/set" --tokens --text "$source"
for keys in '"eos_token_id": [7]' '"eos_token_id": [7, 12]'; do # the expected tokens are those of transformers 5.23
    settings v11 '"forced_bos_token_id": 7'
    sed -i "s/\"eos_token_id\": 1/$keys/" "$T/made/set/generation_config.json"
    ok t5 generate "$T/made/set" --tokens --text "$source" --beams 3 --return 2 --max-new-tokens 6
    check "results with $keys" '7 7' "$(echo $(cat "$T/out"))"
done
settings v11 '"do_sample": true'
ok t5 generate "$T/made/set" --tokens --text "$source" --temperature 2 --top-k 3 --top-p 0.5 --seed 1 --max-new-tokens 3

# Lines may end with CR LF, and the last line may lack a line feed. A carriage return in --text is part of the
# text.
printf 'good\r\nmorning\r\n\r\n' >"$T/dos"
printf 'good\nmorning\n\n' >"$T/unix"
ok t5 tokenize $data/byt5 "$T/unix"
cp "$T/out" "$T/tokens"
ok t5 tokenize $data/byt5 "$T/dos"
same 'lines with CR LF' "$T/tokens" "$T/out"
prints '16 1' t5 tokenize $data/byt5 --text "$(printf '\r')"

# A command ends without a message when the reader of its output exits. It reports a full disk.
for words in 'generate --tokens --batch 4' 'generate --tokens --beams 2' 'generate --tokens --scores' 'generate --tokens --sample --return 2' \
    'score --tokens' 'tokenize --decode'; do
    command="yes | relpos t5 $words | head -1"
    case $words in score*) line='5	6' model=$data/v11 ;; tok*) line='106 1' model=$data/byt5 ;; *) line=5 model=$data/v11 ;; esac
    # shellcheck disable=SC2086
    { yes "$line" | timeout 60 "$program" t5 ${words%% *} $model ${words#* } 2>"$T/err"; echo $? >"$T/code"; } | head -n 1 >/dev/null
    check 'it ends' 1 "$(cat "$T/code")"
    check 'without a message' '' "$(cat "$T/err")"
    # shellcheck disable=SC2086
    "$program" t5 ${words%% *} $model ${words#* } --text "$line" >/dev/full 2>"$T/err"
    check 'a full standard output' '1 1' "$? $(grep -c '^relpos: standard output: No space left' "$T/err")"
done

# explain: heads of the encoder, the decoder and cross-attention; a query by number and by token; a picture
ok t5 explain $data/t5 "$source" --tokens --layer 1 --head 1 --query 2
has '^Encoder, layer 1 of 0 to 1, head 1 of 0 to 1: the query reads .2.$' '^Buckets  *2 +1 +0 +5' '^Biased scores' 'A\[2,5\]' '^Share of weight by distance'
cp "$T/out" "$T/number"
ok t5 explain $data/t5 '5 9 2 4 4 7 1' --tokens --layer 1 --head 1 --query 2 --threads 1
same 'on one thread' "$T/number" "$T/out"
ok t5 explain $data/byt5 'good' --query '<0x64>' --json
has '"query": 3,' '"bucket": \[2, 2, 1, 0, 5\]' '"weights": \[' '"share_by_distance"'
cp "$T/out" "$T/number"
ok t5 explain $data/byt5 'good' --query d --json
same 'a byte by its character' "$T/number" "$T/out"
has '"g", "o", "o", "d"'
ok t5 explain $data/t5 "$source" --tokens --part decoder --target '4 4 7' --query 1
has 'the query reads .4. and writes .4.' ' masked key scores -inf'
ok t5 explain $data/t5 "$source" --tokens --part cross --target '4 4 7' --query 1 -o "$T/made/cross.png"
has '^Cross-attention' '^ *A\[4,5\] = [0-9.]+ \|'
check 'no distances' 0 "$(grep -c 'distance' "$T/out")"
ok t5 explain $data/t5 "$source" --tokens --part cross --json
has '"queries": \["0"'
ok t5 explain $data/longt5_local "$source" --tokens --all

# verify: every model of the T5 family passes, and a damaged model fails
for model in $data/*/config.json; do
    model=${model%/*}
    ok t5 verify "$model" --type f32
    has '^f32   hidden states +error [0-9.e+-]+, bound [0-9.e+-]+$' '^f32   weights and results +finite$' '^[47] checks, 0 failed; largest error / bound 0[.][0-9]+$'
done
ok t5 verify $data/v11
has '42 checks, 0 failed'
for tokens in '4000 5' '5 4000'; do # the first or the last token is not in the vocabulary
    refused 1 "line 1: token $(echo "${tokens%%4000*}" | wc -w) is 4000, and the vocabulary has " t5 verify $data/v11 --text "$tokens" --tokens
done
ok t5 verify "$T/made/packed" --text '5 6 7' --tokens --json
has '"check": "logits", "passed": true, "error": '

# The error bound is smaller than the effect of rounding the inputs of linear layers, so verify detects a missing
# rounding.
for type in bf16 int8 int4; do
    ok t5 verify $data/t5 --type $type --text '5' --tokens --json
    told=$(sed -n 's/.*"check": "hidden states".*"bound": \([^,]*\), "unrounded": \(.*\)}/\1 \2/p' "$T/out")
    check "$type: bound below what rounding changes: $told" below "$(echo "$told" | awk '$1 > 0 && $1 < $2 { print "below" }')"
done
head -c -512 "$T/made/packed" >"$T/made/spoilt"
printf '%512s' '' | tr ' ' '\377' >>"$T/made/spoilt"
run t5 verify "$T/made/spoilt"
check 'exit code' 1 "$code"
has 'FAILED$' '[1-9] failed; '
run t5 verify "$T/made/spoilt" --json
check 'JSON without nan and inf' 0 "$(grep -cE '(nan|inf)[,}]' "$T/out")"
has '"check": "weights and results", "passed": false'

# NaN and infinite results are errors, never an empty text
printf '5\t6\n' >"$T/score"
refused 1 'line 1, of 7 tokens: logits are not finite' t5 generate "$T/made/spoilt" --tokens --text "$source"
refused 1 'logits are not finite' t5 generate "$T/made/spoilt" --tokens --text "$source" --beams 3
refused 1 'logits are not finite' t5 generate "$T/made/spoilt" --tokens --text "$source" --sample
refused 1 'logits are not finite' t5 score "$T/made/spoilt" "$T/score" --tokens
cp -r $data/encoder "$T/made/nan" # the last number of a shard becomes NaN
chmod -R u+w "$T/made/nan"
spoil=$T/made/nan/model-00001-of-00002.safetensors
head -c -2 "$spoil" >"$T/made/shard"
printf '\377\177' >>"$T/made/shard"
cp "$T/made/shard" "$spoil"
run t5 info "$T/made/nan"
has '^damaged      1 of the weights are NaN or infinite$'
ok t5 info "$T/made/nan" --json
has '"not_finite": 1,'
refused 1 'hidden states are not finite: 1 of the weights are NaN or infinite' t5 encode "$T/made/nan" --tokens --text '5 63' -o "$T/made/never.npz"
run t5 verify "$T/made/nan" --type f32
check 'exit code' 1 "$code"
has '^f32   weights and results +NaN or infinite   FAILED$'
ok t5 pack "$T/made/nan" -o "$T/made/nan.packed"
ok t5 info "$T/made/nan.packed" --json
has '"not_finite": 1,'
ok t5 info $data/v11 --json
has '"not_finite": 0,'

# On Ctrl-C, the program prints one line, writes no file and exits with 1. Background processes of a shell ignore SIGINT,
# so the test sends SIGTERM, which has the same effect.
head -c 150000 /dev/zero | tr '\0' a >"$T/long"
"$program" t5 encode $data/byt5 "$T/long" -o "$T/kept/never.npz" --threads 1 2>"$T/err" &
stopped=$!
sleep 2
kill -TERM $stopped
wait $stopped
check 'exit code' 1 $?
check 'one line' 1 "$(wc -l <"$T/err" | tr -d ' ')"
says '^relpos: t5 encode: stopped by a signal \(start it again'
look
check 'no file' "$kept" "$now"

# errors about the files of a checkpoint
mkdir "$T/made/empty"
: >"$T/made/empty/config.json"
refused 1 'config.json: the file is empty \(download the file again\)' t5 info "$T/made/empty"
cp $data/encoder/config.json "$T/made/empty"
echo '{}' >"$T/made/empty/model.safetensors.index.json"
run t5 info "$T/made/empty"
says 'index.json: it has no weight_map \(give an index that save_pretrained wrote\)$'
while IFS='@' read -r map words; do # the index may not name a shard outside its folder
    printf '{"weight_map": %s}\n' "$map" >"$T/made/empty/model.safetensors.index.json"
    run t5 info "$T/made/empty"
    check 'exit code' 1 "$code"
    says "$words"
done <<'END'
{}@it has no weight_map
{"a": ""}@names no file for tensor 'a'
{"a": 3}@names no file for tensor 'a'
{"a": ".x.safetensors"}@names '.x.safetensors' \(shards must be in the folder of the index\)
{"a": "../x.safetensors"}@names '../x.safetensors' \(shards must be in the folder of the index\)
{"a": "x\\y.safetensors"}@names 'x\\y.safetensors' \(shards must be in the folder of the index\)
{"a": "x.safetensors"}@names x.safetensors, but there is no such file
END

refusals t5 <<'END'
2 | no command is called "translate" | translate
1 | there is no config.json in it | info tests
1 | cannot be opened | info tests/none
1 | line 1: "x" is not a token number | generate tests/t5/data/v11 --tokens --text 'x y'
1 | token 0 is 64, and the vocabulary has 64 | generate tests/t5/data/v11 --tokens --text 64
1 | line 1: the model accepts only token numbers | generate tests/t5/data/v11 --text hello
1 | the checkpoint has no decoder | generate tests/t5/data/encoder --tokens --text 5
1 | no tab | score tests/t5/data/v11 --tokens --text 5
2 | --type: the type "f64" is unknown | info tests/t5/data/v11 --type f64
1 | line 1: "5x" is not a token number | generate tests/t5/data/v11 --tokens --text 5x
1 | line 1: -5 is not in the vocabulary | generate tests/t5/data/v11 --tokens --text -5
1 | line 1: 3000000000 is not in the vocabulary | generate tests/t5/data/v11 --tokens --text 3000000000
1 | line 1: 99999999999999999999 is not in the vocabulary | generate tests/t5/data/v11 --tokens --text 99999999999999999999
2 | --begin: "x" is not a token number | generate tests/t5/data/v11 --tokens --text 5 --begin x
2 | --stop: it was given more than 16 times | generate tests/t5/data/byt5 --text 5 $(printf -- '--stop x%.0s ' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17)
2 | --pool: the value "middle" is unknown \(use mean, first, last or none\) | encode tests/t5/data/encoder --tokens --text 5 --pool middle -o x.npz
2 | --early-stopping: the value "later" is unknown | generate tests/t5/data/v11 --tokens --text 5 --early-stopping later
2 | --temperature: 0 is out of range | generate tests/t5/data/v11 --tokens --text 5 --sample --temperature 0
2 | --sample: it needs one beam, but --beams is 2 | generate tests/t5/data/v11 --tokens --text 5 --sample --beams 2
2 | --return: 3 is above the number of beams, 1 | generate tests/t5/data/v11 --tokens --text 5 --return 3
2 | --return: 3 is above the number of beams, 2 | generate tests/t5/data/v11 --tokens --text x --beams 2 --return 3
2 | --beams: 60 is above 32, half of the vocabulary | generate tests/t5/data/v11 --tokens --text 5 --beams 60
2 | --temperature: 1e.07 is out of range | generate tests/t5/data/v11 --tokens --text 5 --sample --temperature 1e7
2 | --repetition-penalty: 1e.07 is out of range | generate tests/t5/data/v11 --tokens --text 5 --repetition-penalty 1e7
2 | --top-p: 2 is out of range | generate tests/t5/data/v11 --tokens --text 5 --sample --top-p 2
2 | --top-p: 0 is out of range | generate tests/t5/data/v11 --tokens --text 5 --sample --top-p 0
2 | --repetition-penalty: 1e-50 is out of range | generate tests/t5/data/v11 --tokens --text 5 --repetition-penalty 1e-50
2 | --length-penalty: 101 is out of range | generate tests/t5/data/v11 --tokens --text 5 --length-penalty 101
2 | --min-new-tokens: 9 is above --max-new-tokens, which is 4 | generate tests/t5/data/v11 --tokens --text 5 --min-new-tokens 9 --max-new-tokens 4
2 | --temperature: only sampling uses it | generate tests/t5/data/v11 --tokens --text 5 --temperature 2
2 | --top-k: only sampling uses it | generate tests/t5/data/v11 --tokens --text 5 --top-k 2 --beams 2
2 | --top-p: only sampling uses it | generate tests/t5/data/v11 --tokens --text 5 --top-p 0.5
2 | --seed: only sampling uses it | generate tests/t5/data/v11 --tokens --text 5 --seed 3
2 | --length-penalty: only a search with several beams uses it | generate tests/t5/data/v11 --tokens --text 5 --length-penalty 2
2 | --early-stopping: only a search with several beams uses it | generate tests/t5/data/v11 --tokens --text 5 --early-stopping true
2 | --exact: it needs one beam, but the search has 2 | generate tests/t5/data/v11 --tokens --text 5 --exact --beams 2
2 | --exact: it needs one beam, but the search has 3 | bench tests/t5/data/v11 --draft int8 --beams 3
2 | --suppress-tokens: "x" is not a token number | generate tests/t5/data/v11 --tokens --text 5 --suppress-tokens '3 x'
2 | --suppress-tokens: 64 is not in the vocabulary \(0 to 63\) | generate tests/t5/data/v11 --tokens --text 5 --suppress-tokens '3 64'
2 | --begin-suppress-tokens: 64 is not in the vocabulary | generate tests/t5/data/v11 --tokens --text 5 --begin-suppress-tokens 64
2 | --forced-bos-token: 64 is not in the vocabulary | generate tests/t5/data/v11 --tokens --text 5 --forced-bos-token 64
2 | --stop: the text is empty | generate tests/t5/data/byt5 --text good --stop ''
2 | --stop: the model has no tokenizer | generate tests/t5/data/v11 --tokens --text 5 --stop x
1 | line 1: "x" is not a token number | generate tests/t5/data/v11 --tokens --text 5 --prefix x
2 | no output file was given | encode tests/t5/data/v11
2 | the suffix is unknown | encode tests/t5/data/v11 -o x.txt
2 | there is no padding | encode tests/t5/data/v11 -o x.npz --attend-padding
2 | it needs one vector for each line | encode tests/t5/data/v11 -o x.npz --normalize
1 | cannot write to its folder | generate tests/t5/data/v11 --tokens --text 5 -o none/there
2 | no text | explain tests/t5/data/t5
2 | --layer: 2 is out of range \(0 to 1\) | explain tests/t5/data/t5 '5 6' --tokens --layer 2
2 | --head: 2 is out of range \(0 to 1\) | explain tests/t5/data/t5 '5 6' --tokens --head 2
2 | --query: 2 is out of range \(0 to 1 | explain tests/t5/data/t5 '5 6' --tokens --query 2
2 | --query: no query is the token "x" | explain tests/t5/data/t5 '5 6' --tokens --query x
2 | --part: the value "both" is unknown | explain tests/t5/data/t5 '5 6' --tokens --part both
2 | --output: x.txt: the suffix is unknown | explain tests/t5/data/t5 '5 6' --tokens -o x.txt
2 | it has no tokens | explain tests/t5/data/t5 '' --tokens
1 | the model has no decoder | explain tests/t5/data/encoder '5 6' --tokens --part cross
1 | transient-global attention | explain tests/t5/data/longt5_global '5 6' --tokens
1 | cannot be opened | verify tests/none
1 | line 1: token 1 is 64, and the vocabulary has 64 | verify tests/t5/data/v11 --tokens --text '5 64'
2 | no output file was given | pack tests/t5/data/v11
1 | cannot write to its folder | pack tests/t5/data/v11 -o none/there
END

finish
