"""What is known of published runs beyond their records: which to distrust, what a record got wrong, which build it was.

Every entry comes from the thread that the record names, from other posts of its author, or from a neighbour of the
same table; none was chosen for its error.
"""

from __future__ import annotations

from typing import Any

# Runs that say nothing of the config they state; their authors or the record explain why.
DISTRUSTED = {
    "disc357-AesSedai-1": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-3": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-7": "CUDA build with hidden GPUs",
    "disc491-Ph0rk0z-4": "R8 tensors on GPUs, not in the header",
    "disc201-VinnyG9-1": "BIOS snoop mode",
    "disc258-ubergarm-1": "half of its twin's speed, no stated fact explains it",
    "disc548-Gaolingx-2": "bf16 with -rtr, misuse by the maintainer's word",
    "disc562-ikawrakow-1": "Vulkan backend",
    "pr598-ubergarm-3": "Vulkan backend",
    "issue255-binjiechen-1": "BLAS build",
    "issue490-nux-4": "NUMA accident between two builds",
    "pr520-quasar-1": "placement not published",
    "pr520-quasar-2": "placement not published",
    "lpr12922-4onen-2": "development branch, below any bound",
    "pr1821-davidsyoung-1": "summary table, settings inferred",
    "pr1821-davidsyoung-2": "summary table, settings inferred",
    "pr1821-davidsyoung-3": "summary table, settings inferred",
    "pr1821-davidsyoung-4": "summary table, settings inferred",
    "schedcp-5090-gptoss120b-uvm": "managed memory that does not fit the card",
    "ik829-ik-oss120-weights": "its regex matches nothing, and the model does not fit the card",
    "cicero-q35-122b-Q4-2gpu-fit-ub4096-ROCm": "placement of -fit not published",
    "cicero-q35-122b-Q4-2gpu-fit-ub4096-Vulkan": "placement of -fit not published",
    "cicero-q35-122b-ROCm-fit512": "placement of -fit not published",
    "cicero-q35-122b-Vulkan-fit512": "placement of -fit not published",
    **dict.fromkeys(
        (f"cicero-gemma4-26b-ROCm-ncmoe{n}" for n in (0, 4, 8, 16, 32)),
        "0.9 s in every batch of any size, which no other MoE on ROCm and no other back end of that card takes",
    ),
    "winc-g4-3060-exps": "link of the second card not stated; its placements agree on 1.9 GB/s",
    "winc-g4-3060-half": "link of the second card not stated; its placements agree on 1.9 GB/s",
    "winc-g4-3060-ngl15": "link of the second card not stated; its placements agree on 1.9 GB/s",
    "b70-sycl-llama-3.1-70b-instruct-q2_k": "does not fit the card as stated",
}

# Authors whose later ids begin with a short name.
AUTHORS = (
    {"ik": "ikawrakow", "magik": "magikRUKKOLA", "thireus": "Thireus", "ph0rk0z": "Ph0rk0z"}
    | dict.fromkeys(("smollm3", "qwen3next", "q35", "mimo", "q314b", "q3vl32", "hunyuan", "GLM47Flash"), "ikawrakow")
    | {"qwen35": "ubergarm", "q3cn": "ubergarm"}
)

# Published comparisons that compare more than they say; their runs stand, each for itself.
NO_PAIRS = {
    "panchovix-v3-q3kxl-mla": "build and placement differ too, and the machine was in use during one run",
}

# The commit of these runs is known better than by its day: runs before and after a change under one date.
BUILD_DATES = {
    "ik754-ik-gemma12b-main": "2025-09-03",
    "ik757-ik-gemma12b-cpu-main": "2025-09-03",
    "issue490-ikawrakow-b1": "2025-05-25",
    "issue490-nux-5": "2025-05-25",
    "pr370-AesSedai-1": "2025-05-05",
    "pr370-ubergarm-10": "2025-05-05",
    "pr559-ubergarm-4": "2025-06-25",
    "pr559-ubergarm-5": "2025-06-25",
    "pr559-ubergarm-6": "2025-06-25",
    "pr612-ubergarm-5": "2025-07-20",
    "pr700-ikawrakow-1": "2025-08-16",
    "pr700-ubergarm-2": "2025-08-16",
    "pr700-ubergarm-3": "2025-08-09",
}

# CPUs that a record leaves out and its author names elsewhere: of the author's machine with that GPU.
_7950X = {"model": "AMD Ryzen 9 7950X", "sockets": 1, "physical_cores": 16}
_5975WX = {"model": "AMD Ryzen Threadripper PRO 5975WX", "sockets": 1, "physical_cores": 32}
_XEONS = {"model": "2x Intel Xeon Scalable, AVX512 without VNNI (model not stated)", "sockets": 2, "physical_cores": 48}
CPUS: dict[str, dict[str, Any]] = {
    "issue255-ikawrakow": _7950X,
    "pr386-ikawrakow": _7950X,
    "pr400-ikawrakow": _5975WX,
    "pr589-ikawrakow": _7950X,
    "pr700-ikawrakow": _7950X,
    "pr762-Ph0rk0z": _XEONS,
}
RAMS: dict[str, dict[str, Any]] = {"pr762-Ph0rk0z": {"type": "DDR4", "channels": 12, "mts": 2400}}
# Records that count the cores of one of two sockets.
CORES = {"pr273-saood06": 24, "issue490-nux": 32}

# Mixes of one run: whose header says a plain type and whose file is repacked (its name, or the author, says so); of
# the file that the author took from ubergarm (his post of the same day, 132.9 GiB), like its interleaved sibling.
MIXES = {
    "disc258-magikRUKKOLA-5": "exps=q4_K_r4,*=q6_K",
    "disc477-Thireus-1": "ffn_down_exps=iq1_m,exps=iq1_s,*=iq5_ks",
}
# Files whose loader's list of types was posted, by model and quantisation: shape and mix (discussions 258, 477, 357).
# With the first two, the weights on each card are those that discussion 258 prints, with the third the printed size.
FILES = {
    ("DeepSeek-R1", "UD-Q2_K_XL"): (
        "DeepSeek-R1-kv_b-alone",
        "blk.3.ffn_down_exps=q3_K,blk.4.ffn_down_exps=q3_K,blk.5.ffn_down_exps=q3_K,exps=q2_K,attn_kv=q6_K,attn=q4_K,"
        "ffn_down=q6_K,output=q6_K,*=q4_K",
    ),
    ("DeepSeek-R1-0528", "IQ2_K_R4"): (
        "DeepSeek-R1-with-kv_b",
        "ffn_down_exps=iq3_k_r4,exps=iq2_k_r4,attn_k_b=q5_0,ffn_gate_shexp=iq4_ks,ffn_up_shexp=iq4_ks,*=iq5_ks",
    ),
    ("Qwen3-235B-A22B", "mix-IQ3_K"): ("Qwen3-235B-A22B", "ffn_down_exps=iq4_k,exps=iq3_k,attn=iq6_k,*=q8_0"),
}
# Files with attn_kv_b, which builds of those days ran otherwise without (ik_llama.cpp pull 394).
WITH_KV_B = ("pr400-ikawrakow",)
# Files whose tensors in RAM were repacked before the run: as with -rtr.
REPACKED = ("disc491-Ph0rk0z-5",)

# Parts of commands that are words: what the thread says they stand for.
COMMANDS = (
    (" -ub (see n_ubatch)", ""),
    (" -ub 32..4096", ""),
    ("-fa 0/1", "-fa 1,0"),
    ("-mg 2-gpu-max", "--max-gpu 2"),
    ("-t 6 (18 prefill / 6 generation threads)", "-tgb 6,18"),
    ("all experts on the CPU (-ot exps=CPU),", "-ot exps=CPU"),
    (" (from the PP column), up to 32k context", ""),
    (" CPU only (from the table)", ""),
    ("(as stated), full offload", "-ngl 99"),
    ("... (head of the command as published)", "-ngl 99"),
    ("(default fit, -fitt 2048 -fitc 8192)", "-fitt 2048 -fitc 8192"),
    ("--model DeepSeek-R1 Q4_K_M", "--model DeepSeek-R1-Q4_K_M.gguf"),
    ("-m MiniMax-M2 Q4_K_M", "-m MiniMax-M2-Q4_K_M.gguf"),
    ("gpt-oss-120b-F16 (experts MXFP4).gguf", "gpt-oss-120b-F16.gguf"),
    # Of this machine's cards the records have only the one that was used.
    ("llama-bench -dev CUDA1 -ctk f16 -ctv f16", "llama-bench -dev CUDA0 -ctk f16 -ctv f16"),
    (r'"blk\.(7 layers, list not published for this row)\.ffn_.*=CUDA0"', r'"blk\.(3|4|5|6|7|8|9)\.ffn_.*=CUDA0"'),
    (
        r'"blk\.(7 layers, list not published for this row)\.ffn_.*=CUDA1"',
        r'"blk\.(10|11|12|13|14|15|16)\.ffn_.*=CUDA1"',
    ),
)
# Commands without -mla whose tokens slow down with depth as with a latent cache.
LATENT = ("disc477-Panchovix-1",)
# Flash attention that a fragment leaves out: the thread is about its kernels, or its other commands have it.
FLASH = ("pr700-ikawrakow", "pr841-ikawrakow", "gptoss-guide")
# Fused experts that a command leaves out and the thread names.
FUSED = ("pr400-ikawrakow",)
