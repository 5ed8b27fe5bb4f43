#!/bin/sh
# log.sh -- relpos lab log: the log of a run as CSV and as TensorBoard events
#
#     tests/lab/log.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

ok lab log "$T/run"
check 'one line per logged step, and a header' 7 "$(wc -l <"$T/out")"
check 'the names' 'step,loss,loss_mean,norm,lr,tokens,tokens_per_s,valid_loss,valid_perplexity,valid_bits_per_byte,valid_tokens' \
    "$(head -n 1 "$T/out")"
check 'the numbers of the log' "$(number valid_loss "$T/run/log.jsonl")" "$(tail -n 1 "$T/out" | cut -d , -f 8)"
check 'the same number of cells in each line' 11 "$(awk -F , '{print NF}' "$T/out" | sort -u)"

# TensorBoard 2.21 reads these bytes as train/loss 2.5 at step 4 after 2 seconds, and valid/loss 1.25 at step 8 after
# 3
cat >"$T/fixed.jsonl" <<'END'
{"experiment":"none"}
{"step":4,"loss":2.5,"tokens":100,"tokens_per_s":50}
{"step":8,"loss":2,"tokens":200,"tokens_per_s":100.0}
{"step":8,"valid_loss":1.25,"valid_perplexity":null}
END
ok lab log "$T/fixed.jsonl" --tensorboard "$T/events/here"
check 'the events' 3ee4b3583ac964ce \
    "$(sha256sum <"$T/events/here/events.out.tfevents.0.relpos" | cut -c 1-16)"
ok lab log "$T/fixed.jsonl"
check 'empty cells' '4,2.5,100,50,|8,2,200,1e+02,1.25|' "$(tail -n 2 "$T/out" | tr '\n' '|')"
echo '{"a":1}' >"$T/no.jsonl"
refused 1 'no line has a step' lab log "$T/no.jsonl"
refused 1 'nothing: ' lab log "$T/nothing"
refused 2 'no run was given' lab log

finish
