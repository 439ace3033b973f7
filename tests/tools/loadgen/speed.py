"""loadgen is not the bottleneck at 2,000 requests/s of 16-token answers: as many cost less than a
second of one core. Processor time is measured, for it does not depend on what else runs.

    speed.py LOADGEN TRIVIAL_RESPONDER
"""

import os
import subprocess
import sys

REQUESTS, MOST_CPU_S = 2000, 1.0
LOADGEN, RESPONDER = sys.argv[1:3]

responder = subprocess.Popen([RESPONDER], stdout=subprocess.PIPE, text=True)
try:
    port = responder.stdout.readline().split()[1]
    loadgen = subprocess.Popen(
        [LOADGEN, f"--url=http://127.0.0.1:{port}", "--rate=2000", f"--requests={REQUESTS}",
         "--shared-tokens=16", "--unique-tokens=16", "--output-tokens=16"],
        stdout=subprocess.PIPE, text=True)
    table = loadgen.stdout.read()
    _, status, usage = os.wait4(loadgen.pid, 0)
finally:
    responder.kill()
    responder.wait()
print(table)
cpu_s = usage.ru_utime + usage.ru_stime
print(f"{cpu_s:.2f} s of processor time, {cpu_s / REQUESTS * 1e6:.0f} us a request")
if status != 0 or f"{REQUESTS} completed, 0 failed" not in table:
    sys.exit("not all requests were answered")
if cpu_s > MOST_CPU_S:
    sys.exit(f"{REQUESTS} requests may take {MOST_CPU_S} s")
