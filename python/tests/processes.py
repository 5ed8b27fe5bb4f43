"""Run functions of a test file in the processes of a torch.distributed group with gloo, on this machine.
SPDX-License-Identifier: Apache-2.0"""
import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import traceback

HERE = pathlib.Path(__file__).parent
SECONDS = 300  # a process that takes longer is killed


def run(ranks, module, names, folder):
    """Call module.name(rank, folder) for each of the names in `ranks` processes, and fail with all their errors."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    code = (f"import sys; sys.path.insert(0, {str(HERE)!r}); import processes; processes.work({module!r}, {names!r}, "
            f"{str(folder)!r}, *sys.argv[1:])")
    started = [subprocess.Popen([sys.executable, "-P", "-c", code, str(rank), str(ranks)], env=environment,
                                stderr=subprocess.PIPE, text=True)
               for rank in range(ranks)]
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), "\n".join(errors)
    failed = [text for rank in range(ranks)
              for text in json.loads((folder / f"found{ranks}.{rank}").read_text()).values() if text]
    assert not failed, "\n".join(failed)


def work(module, names, folder, rank, ranks):
    """Run the functions in this process, and write {name: text}."""
    import torch.distributed as dist
    rank, ranks, folder, found = int(rank), int(ranks), pathlib.Path(folder), {}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet{ranks}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60))
    module = importlib.import_module(module)
    for name in names:
        try:
            getattr(module, name)(rank, folder)
            found[name] = ""
        except Exception:
            found[name] = f"rank {rank}: {traceback.format_exc()}"
            print(found[name], file=sys.stderr)  # the next barrier may fail
        dist.barrier()
    (folder / f"found{ranks}.{rank}").write_text(json.dumps(found))
    dist.destroy_process_group()
