"""One command that breaks each rule and one that does not, by the rule's name."""

from __future__ import annotations

from typing import NamedTuple

from service.engine.config import Engine
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from tests.rigs import ONE_3090_DESKTOP, TWO_5090_TWO_4090

IK: Engine = "ik_llama.cpp"
LLAMA: Engine = "llama.cpp"
BERT = ("bge-m3", "q8_0")
QWEN = ("Qwen3-235B-A22B", "q4_K_M")
SMALL_MOE = ("Qwen3-30B-A3B", "q4_K_M")
R1_R4 = ("DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0")
R1 = ("DeepSeek-R1-0528", "q2_k")
V4 = ("DeepSeek-V4-Flash", "q4_K_M")
GLM = ("GLM-4.5-Air", "q4_K_M")
LITTLE_RAM = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
FOUR_3090 = Hardware(gpus=[Gpu(name="RTX 3090", count=4)], cpu=Cpu(model="EPYC 7713"), ram=Ram(total_gb=512))
GPT_OSS = ("gpt-oss-20b", "exps=mxfp4,*=q8_0")
DENSE = ("Llama-3.3-70B", "q4_K_M")
DENSE_Q8 = ("Llama-3.3-70B", "q8_0")
DENSE_SMALL = ("Qwen3-14B", "q4_K_M")
WINDOWED = ("Gemma-3-12B", "q4_K_M")
AIR = ("GLM-4.5-Air", "q4_K_M")  # its whole context is more than a card
HYBRID = ("Qwen3.5-27B", "q4_K_M")
TIGHT_RAM = Hardware(gpus=[], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=78))
TWO_3090 = Hardware(gpus=[Gpu(name="RTX 3090", count=2)], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
DUAL = Hardware(
    gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="EPYC 9355", sockets=2, physical_cores=64), ram=Ram(total_gb=512)
)
LITTLE_NODES, LARGE_NODES = (
    Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="EPYC 9355", sockets=2, numa_nodes=8), ram=Ram(total_gb=total))
    for total in (192, 768)
)
FAST_AND_SLOW = Hardware(
    gpus=[Gpu(name="RTX 4090"), Gpu(name="RTX 3060")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64)
)
RX_9070_XT = Hardware(
    gpus=[Gpu(name="RX 9070 XT")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64), backend="rocm"
)
SMALL_MAC = Hardware(gpus=[Gpu(name="Apple M4")], cpu=Cpu(model="Apple M4"), ram=Ram(total_gb=16), os="macos")
SLOW_LINK = Hardware(gpus=[Gpu(name="RTX 3090", pcie="3.0 x1")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=192))

P40 = (DENSE_SMALL, Hardware(gpus=[Gpu(name="Tesla P40")], cpu=Cpu(model="Xeon E5-2680 v4"), ram=Ram(total_gb=64)))


class Example(NamedTuple):
    """A rule, a command that breaks it, one that does not, and where both are run.

    `draft`: the draft model. `projector`: the kind of one beside the model. `n_head_dim`: another size of the model's
    heads.
    """

    rule: str
    broken: str
    sound: str
    engine: Engine = IK
    model: tuple[str, str] = QWEN
    hardware: Hardware = ONE_3090_DESKTOP
    build: str | None = None
    draft: tuple[str, str] | None = None
    projector: str = ""
    n_head_dim: int | None = None


GOOD_IK = "llama-server -m m.gguf -c 32768 -b 4096 -ub 2048 -ngl 99 -ot exps=CPU -t 16"
GOOD_LLAMA = "llama-server -m m.gguf -c 32768 -ub 2048 -ngl 99 -fa on -fit off -np 1 -ot exps=CPU -t 16"
OLD_IK = "llama-server -m m.gguf -c 32768 -b 4096 -ub 2048 -ngl 99 -ot exps=CPU -t 16"
OLD_OSS = "llama-server -m m.gguf -c 32768 -ngl 99 -fa on -np 1"
ON_MAC = "llama-server -m m.gguf -ngl 99 -fa on -fit off -np 1"
ON_P40 = "llama-server -m m.gguf -c 8192 -ngl 99 -fa on"
ALL_ON_GPU = "llama-server -m m.gguf -c 8192 -ngl 99"
FOUR = "-c 8192 -ngl 99 -ot exps=CPU -ub 2048"
TWO_SOCKETS = "llama-server -m m.gguf -c 8192 -ngl 99 -ot exps=CPU"
TIGHT = "llama-server -m m.gguf -c 4096"
FULL_LLAMA = "llama-server -m m.gguf -c 4096 -ngl 99 -fit off -np 1"
REUSING = f"{FULL_LLAMA} --cache-reuse 256"
MANY_SLOTS = "llama-server -m m.gguf -c 32768 -ngl 99 -fit off"
LOGITS = "llama-server -m m.gguf -c 8192 -ub 2048 -ngl 99"
FILLED = GOOD_IK.replace("-ot", "-ot 'blk\\.([0-9]|1[0-3])\\.ffn_.*_exps=CUDA0' -ot")
SLOW = "-c 4096 -ngl 99"
EMBED = "llama-server -m m.gguf -ngl 99 -c 8192 -np 1"

EXAMPLES = (
    Example("unknown-flag", f"{GOOD_IK} --make-it-fast", GOOD_IK),
    Example("unknown-flag", f"{GOOD_LLAMA} -muge", GOOD_LLAMA, LLAMA),
    Example("retired-flag", f"{GOOD_IK} -fmoe", GOOD_IK),
    Example("retired-flag", f"{GOOD_IK} -fa -v", f"{GOOD_IK} -fa on"),
    Example("retired-flag", "llama-bench -m m.gguf -ngl 99 -fa on", "llama-bench -m m.gguf -ngl 99 -fa 1"),
    Example("retired-flag", f"{GOOD_LLAMA} --no-mmap", f"{GOOD_LLAMA} -lm none", LLAMA),
    Example("cache-type-unknown", f"{GOOD_LLAMA} -ctk q6_0", f"{GOOD_LLAMA} -ctk q8_0", LLAMA),
    Example("split-mode-unknown", f"{GOOD_IK} -sm row", f"{GOOD_IK} -sm layer"),
    Example("obsolete-op-numbers", f"{GOOD_IK} -op 26,0,27,0,29,0", f"{GOOD_IK} -op 28,0,31,0"),
    Example("not-counted", f"{GOOD_IK} -md draft.gguf --spec-type draft", GOOD_IK),
    Example("not-counted", f"{GOOD_LLAMA} --mmproj mmproj.gguf", GOOD_LLAMA, LLAMA),
    Example(
        "not-counted",
        f"{GOOD_LLAMA} --override-kv qwen3moe.expert_used_count=int:6",
        f"{GOOD_LLAMA} --override-kv tokenizer.ggml.add_bos_token=bool:false",
        LLAMA,
    ),
    Example(
        "not-counted",
        f"{FULL_LLAMA} -md d.gguf -ngld 99 -dev CUDA0 -devd CUDA1",
        f"{FULL_LLAMA} -md d.gguf -ngld 99 -dev CUDA0 -devd CUDA0",
        LLAMA,
        DENSE_SMALL,
        TWO_3090,
        draft=("Qwen3-0.6B", "q8_0"),
    ),
    Example("not-counted", f"{GOOD_LLAMA} -hf a/b", f"{GOOD_LLAMA} -hf a/b --no-mmproj", LLAMA),
    Example(
        "projector-of-another-model",
        f"{FULL_LLAMA} --mmproj p.gguf",
        FULL_LLAMA,
        LLAMA,
        DENSE_SMALL,
        projector="gemma3",
    ),
    Example(
        "image-beyond-context",
        f"{FULL_LLAMA} --mmproj p.gguf",
        f"{FULL_LLAMA} --mmproj p.gguf --image-max-tokens 1024",
        LLAMA,
        WINDOWED,
        projector="glm4v",
    ),
    Example("cache-reuse-without-effect", f"{REUSING} -mmu https://a/p.gguf", REUSING, LLAMA, DENSE_SMALL),
    Example(
        "image-beyond-micro-batch",
        f"{FULL_LLAMA} --mmproj p.gguf -ub 128",
        f"{FULL_LLAMA} --mmproj p.gguf -ub 256",
        LLAMA,
        WINDOWED,
        projector="gemma3",
    ),
    Example(
        "projector-unasked",
        f"{GOOD_LLAMA} -hf a/b",
        f"{GOOD_LLAMA} -hf a/b --no-mmproj-auto",
        LLAMA,
        projector="gemma3",
    ),
    Example(
        "environment-not-counted",
        f"GGML_CUDA_DISABLE_FUSION=1 {GOOD_LLAMA}",
        f"GGML_VK_VISIBLE_DEVICES=0 {GOOD_LLAMA}",
        LLAMA,
    ),
    Example("rpc-not-supported", f"{GOOD_LLAMA} --rpc 10.0.0.2:50052", GOOD_LLAMA, LLAMA),
    Example("no-next-token-layers", f"{GOOD_IK} --spec-type mtp:n_max=1", GOOD_IK),
    Example("no-next-token-layers", f"{GOOD_LLAMA} --spec-type draft-mtp", GOOD_LLAMA, LLAMA),
    Example("speculation-with-slots", f"{GOOD_IK} --spec-type mtp -np 2", f"{GOOD_IK} --spec-type mtp", IK, GLM),
    Example("speculation-with-slots", f"{GOOD_IK} --spec-type ngram-mod -np 2", f"{GOOD_IK} --spec-type ngram-mod"),
    Example(
        "draft-context-unused",
        f"{GOOD_IK} -md d.gguf --spec-type draft -cd 1024",
        f"{GOOD_IK} -md d.gguf --spec-type draft -draft '-c 1024'",
    ),
    Example("projector-unknown", f"{GOOD_IK} --mmproj p.gguf", GOOD_IK, model=WINDOWED, projector="glm4v"),
    Example(
        "draft-with-projector",
        f"{GOOD_IK} -md d.gguf --spec-type draft --mmproj p.gguf",
        f"{GOOD_IK} -md d.gguf --mmproj p.gguf",
        draft=("Qwen3-0.6B", "q8_0"),
        projector="gemma3",
    ),
    Example("speed-without-draft", f"{GOOD_IK} --spec-type mtp", GOOD_IK, IK, GLM),
    Example("context-unset", GOOD_IK.replace("-c 32768", ""), GOOD_IK),
    Example("several-values", "llama-bench -m m.gguf -ngl 99 -ub 512,1024", "llama-bench -m m.gguf -ngl 99 -ub 512"),
    Example("override-refused", f"{GOOD_IK} -ot 'blk.(=CPU'", GOOD_IK),
    Example("override-refused", f"{GOOD_IK} -ot attn=CUDA7", f"{GOOD_IK} -ot attn=CUDA0"),
    Example("override-refused", f"{GOOD_IK} -ot attn=CUDA_Host", GOOD_IK),
    Example("context-beyond-training", f"{GOOD_LLAMA} -c 65536", GOOD_LLAMA, LLAMA),
    Example("card-not-there", f"CUDA_VISIBLE_DEVICES=1 {GOOD_IK}", f"CUDA_VISIBLE_DEVICES=0 {GOOD_IK}"),
    Example("device-unknown", f"{GOOD_IK} -dev CUDA4", f"{GOOD_IK} -dev CUDA0"),
    Example("override-ignored", "llama-server -m m.gguf -ngl 0 -ot exps=CPU", GOOD_IK),
    Example("override-matches-nothing", f"{GOOD_IK} -ot 'blk.1.ffn_up_shexp=CPU'", f"{GOOD_IK} -ot output=CUDA0"),
    Example(
        "override-never-wins",
        f"{GOOD_IK} -ot 'blk\\.3\\.ffn_.*_exps=CUDA0'",
        GOOD_IK.replace("-ot", "-ot 'blk\\.3\\.ffn_.*_exps=CUDA0' -ot"),
    ),
    Example(
        "cannot-load", GOOD_LLAMA, GOOD_LLAMA.replace("llama-server", "llama-cli"), LLAMA, R1_R4, TWO_5090_TWO_4090
    ),
    Example(
        "up-gate-apart",
        GOOD_IK.replace("-ot", "-ot 'blk\\.[0-3]\\.ffn_up_exps=CUDA0' -ot"),
        GOOD_IK.replace("-ot", "-ot 'blk\\.[0-3]\\.ffn_(up|gate)_exps=CUDA0' -ot"),
    ),
    Example(
        "type-without-gpu-kernel",
        ALL_ON_GPU,
        f"{ALL_ON_GPU} -ot exps=CPU",
        model=("Qwen3-30B-A3B", "exps=q4_k_r4,*=q8_0"),
    ),
    Example("experts-left-on-gpu", ALL_ON_GPU, f"{ALL_ON_GPU} -ot exps=CPU"),
    Example("experts-in-ram-needlessly", f"{ALL_ON_GPU} -ot exps=CPU", ALL_ON_GPU, model=SMALL_MOE),
    Example("repacked-with-large-micro-batch", f"{GOOD_IK} -rtr", GOOD_IK),
    Example(
        "micro-batch-below-threshold",
        "llama-sweep-bench -c 32768 -ub 512 -ngl 99 -ot exps=CPU",
        "llama-sweep-bench -c 32768 -b 4096 -ub 4096 -ngl 99 -ot exps=CPU",
        model=R1,
        hardware=TWO_5090_TWO_4090,
    ),
    Example("batch-below-micro-batch", f"{GOOD_IK} -ub 8192", GOOD_IK),
    Example("batch-no-multiple", f"{GOOD_IK} -b 3000", GOOD_IK),
    Example("quantised-v-without-fa", f"{GOOD_IK} -fa off -ctv q8_0", f"{GOOD_IK} -fa off -ctk q8_0"),
    Example("cache-type-without-gpu-kernel", f"{GOOD_IK} -ctk q8_KV", f"{GOOD_IK} -ctk q8_0"),
    Example(
        "compressed-cache-refused", f"{GOOD_IK} -ctk q4_0", f"{GOOD_IK} -ctk q8_0", model=V4, hardware=TWO_5090_TWO_4090
    ),
    Example("indexer-not-loaded", GOOD_IK, GOOD_IK, model=("MiniMax-M3", "q2_k"), hardware=TWO_5090_TWO_4090),
    Example("mla-without-effect", f"{GOOD_IK} -mla 3", GOOD_IK),
    Example("amb-without-effect", f"{GOOD_IK} -amb 512", f"{GOOD_IK} -amb 512 -fa off"),
    Example("amb-too-small", f"{GOOD_IK} -amb 64", f"{GOOD_IK} -amb 512", model=R1, hardware=TWO_5090_TWO_4090),
    Example("v-type-without-effect", f"{GOOD_IK} -ctv q8_0", GOOD_IK, model=R1, hardware=TWO_5090_TWO_4090),
    Example("mla-off", f"{GOOD_IK} -mla 0", f"{GOOD_IK} -mla 3", model=R1, hardware=TWO_5090_TWO_4090),
    Example("does-not-fit", f"{GOOD_IK} -c 262144", GOOD_IK),
    # ggml-org/Llama-macOS issue 58: gpt-oss-20b on 16 GB
    Example("limit-to-raise", f"{ON_MAC} -c 16384", f"{ON_MAC} -c 16384 -ncmoe 12", LLAMA, GPT_OSS, SMALL_MAC),
    Example("ram-too-small", GOOD_IK, ALL_ON_GPU, hardware=LITTLE_RAM),
    Example("fit-left-on", GOOD_LLAMA.replace("-fit off", "").replace("-c 32768", ""), GOOD_LLAMA, LLAMA, AIR),
    Example("fit-places-itself", "llama-server -m m.gguf -c 4096", GOOD_LLAMA, LLAMA),
    Example("fit-finds-no-placement", "llama-server -m m.gguf -c 131072 --fit", "llama-server -m m.gguf -c 4096 --fit"),
    Example("fit-places-itself", "llama-server -m m.gguf -c 4096 --fit", GOOD_IK),
    Example("split-left-to-chance", FOUR, f"{FOUR} -ts 32,32,24,24", hardware=TWO_5090_TWO_4090),
    Example("split-left-to-chance", FOUR, f"CUDA_VISIBLE_DEVICES=0,1 {FOUR}", hardware=TWO_5090_TWO_4090),
    Example("shares-without-gpu", f"{GOOD_IK} -ts 1,1", f"{GOOD_IK} -ts 1"),
    Example("main-gpu-unknown", f"{GOOD_IK} -mg 3", f"{GOOD_IK} -mg 0"),
    Example(
        "none-with-several-gpus", f"{FOUR} -sm none", f"CUDA_VISIBLE_DEVICES=0 {FOUR} -sm none", hardware=FOUR_3090
    ),
    Example("graph-split-impossible", f"{GOOD_IK} -sm graph", GOOD_IK),
    Example(
        "graph-split-one-card",
        "-c 8192 -ngl 99 -sm graph -ts 3,1",
        "-c 8192 -ngl 99 -sm graph -ts 2,1",
        model=SMALL_MOE,
        hardware=TWO_3090,
    ),
    Example(
        "graph-split-partial-experts",
        "-c 8192 -ngl 99 -ub 2048 -sm graph -ot ffn_down_exps=CPU",
        f"{FOUR} -sm graph",
        hardware=FOUR_3090,
    ),
    Example("split-mode-approximate", f"{FOUR} -sm graph", FOUR, hardware=FOUR_3090),
    Example("cpu-moe-by-share", f"{ALL_ON_GPU} -ncmoe 20", f"{ALL_ON_GPU} -cmoe", hardware=FOUR_3090),
    Example("cpu-moe-by-share", f"{ALL_ON_GPU} -ncmoe 20 -sm graph", f"{ALL_ON_GPU} -cmoe", hardware=FOUR_3090),
    Example(
        "cpu-moe-by-share",
        f"{ALL_ON_GPU} -ncmoe 20",
        f"{ALL_ON_GPU} -ncmoe 20 -sm graph",
        hardware=FOUR_3090,
        build="2026-06-01",
    ),
    Example(
        "main-gpu-without-effect",
        f"{ALL_ON_GPU} -mg 3 -sm graph",
        f"{ALL_ON_GPU} -sm graph --fit",
        hardware=FOUR_3090,
    ),
    Example("too-many-threads", f"{GOOD_IK} -t 32", GOOD_IK),
    Example("odd-threads", f"{GOOD_IK} -t 15", GOOD_IK),
    Example("option-of-another-time", f"{OLD_IK} -no-fmoe", f"{OLD_IK} -fmoe", build="2025-05-11"),
    Example("option-of-another-time", f"{OLD_IK} -fa on", f"{OLD_IK} -fa", build="2025-05-11"),
    Example("option-of-another-time", f"{OLD_IK} -fa -v", OLD_IK, build="2025-11-01"),
    Example("option-gone-since", f"{OLD_IK} -fmoe", OLD_IK, build="2025-05-11"),
    Example("option-gone-since", f"{GOOD_LLAMA} --no-mmap", GOOD_LLAMA, LLAMA, build="2026-01-15"),
    Example(
        "latent-cache-types-differ", f"{GOOD_LLAMA} -ctk q8_0", f"{GOOD_LLAMA} -ctk q8_0 -ctv q8_0", LLAMA, model=R1
    ),
    Example("split-mode-refused", f"{GOOD_LLAMA} -sm row", GOOD_LLAMA, LLAMA, hardware=FOUR_3090),
    Example(
        "split-mode-refused", f"{GOOD_LLAMA} -sm tensor -fa off", f"{GOOD_LLAMA} -sm tensor", LLAMA, hardware=FOUR_3090
    ),
    Example(
        "split-mode-may-abort",
        f"{FULL_LLAMA} -sm tensor -ctk iq4_nl -ctv iq4_nl",
        f"{FULL_LLAMA} -sm tensor -ctk q8_0 -ctv q8_0",
        LLAMA,
        DENSE_SMALL,
        TWO_3090,
    ),
    Example(
        "split-mode-may-abort",
        f"CUDA_VISIBLE_DEVICES=0,1,2 {FULL_LLAMA} -sm tensor",
        f"CUDA_VISIBLE_DEVICES=0,1 {FULL_LLAMA} -sm tensor",
        LLAMA,
        DENSE_SMALL,
        FOUR_3090,
    ),
    Example(
        "older-build", f"{OLD_IK} -fa -mla 3 -amb 512", f"{OLD_IK} -fa -c 4096 -ub 512", build="2025-07-01", model=R1
    ),
    Example("latent-file-refused", f"{OLD_IK} -fa -mla 3", "", build="2025-05-08", model=R1),
    Example("latent-mode-forced", f"{OLD_IK} -fa -mla 3", f"{OLD_IK} -fa -mla 1", build="2025-05-10", model=R1),
    Example("copies-of-ram", OLD_IK, f"{ALL_ON_GPU} -fa", hardware=FOUR_3090, build="2025-07-01"),
    Example(
        "device-order-unknown",
        f"CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server {FOUR}",
        f"llama-server {FOUR}",
        hardware=TWO_5090_TWO_4090,
    ),
    Example("value-not-understood", f"{GOOD_IK} -ngl abc", GOOD_IK),
    Example("value-not-understood", f"{GOOD_LLAMA} -ctk q9_0", GOOD_LLAMA, LLAMA),
    Example("value-out-of-range", f"{GOOD_IK} -c -5", GOOD_IK),
    Example("micro-batch-zero", f"{GOOD_IK} -ub 0", GOOD_IK),
    Example(
        "no-gpu-in-container",
        "docker run ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf -c 4096",
        "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf -c 4096",
        LLAMA,
        DENSE_SMALL,
    ),
    Example(
        "no-gpu-in-container",
        "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server -m m.gguf -c 4096",
        "docker run --device /dev/dri ghcr.io/ggml-org/llama.cpp:server-vulkan -m m.gguf -c 4096",
        LLAMA,
        DENSE_SMALL,
    ),
    Example(
        "container-limits",
        "docker run --gpus all -m 8g ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf -c 4096",
        "docker run --gpus all -m 0 ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf -c 4096",
        LLAMA,
        DENSE_SMALL,
    ),
    Example(
        "container-limits",
        "[Service]\nEnvironmentFile=/etc/llama.env\nExecStart=/usr/bin/llama-server -m m.gguf -c 4096",
        "[Service]\nExecStart=/usr/bin/llama-server -m m.gguf -c 4096",
        LLAMA,
        DENSE_SMALL,
    ),
    Example("not-as-pasted", f"{GOOD_LLAMA} \\\n# the experts\n-v", f"{GOOD_LLAMA} \\\n  -v", LLAMA),
    Example("not-as-pasted", GOOD_LLAMA.replace(" -ngl", " –ngl"), GOOD_LLAMA, LLAMA),
    Example(
        "left-out",
        "koboldcpp --model m.gguf --gpulayers 99 --quiet",
        "koboldcpp --model m.gguf --gpulayers 99",
        LLAMA,
        DENSE_SMALL,
    ),
    Example("threads-zero", f"{GOOD_IK} -t 0", GOOD_IK),
    Example(
        "flash-attention-impossible", "-c 4096 -fa on -ngl 99", "-c 4096 -ngl 99", IK, ("Grok-2", "q2_k"), FOUR_3090
    ),
    Example("cache-type-aborts-on-cpu", f"{GOOD_IK} -ngl 20 -ctk q5_0 -ctv q5_0", f"{GOOD_IK} -ctk q5_0 -ctv q5_0"),
    Example("cache-types-before-volta", ON_P40 + " -ctk q6_0 -ctv q6_0", ON_P40 + " -ctk q6_0 -ctv q5_0", IK, *P40),
    Example("cache-types-before-volta", ON_P40 + " -ctk q5_1 -ctv q4_1", ON_P40 + " -ctk q4_0 -ctv q4_0", IK, *P40),
    Example("cache-type-block", "-c 4096 -ctk q8_0", "-c 4096", IK, DENSE_SMALL, n_head_dim=80),
    Example("hadamard-without-effect", f"{GOOD_IK} -khad", f"{GOOD_IK} -khad -ctk q8_0"),
    Example("keys-not-rotated", f"{GOOD_IK} -ctk q4_0 -ctv q4_0", f"{GOOD_IK} -ctk q4_0 -ctv q4_0 -khad"),
    Example("keys-not-rotated", f"{GOOD_IK} -ctk q4_0 -ctv q4_0", f"{GOOD_IK} -ctk q8_0 -ctv q4_0"),
    Example(
        "keys-of-few-bits",
        "-c 4096 -ctk q4_0 -ctv q4_0 -fa on",
        "-c 4096 -ctk q8_0 -ctv q4_0 -fa on",
        LLAMA,
        ("Qwen2.5-7B", "q4_K_M"),
    ),
    Example("cache-in-ram", f"{GOOD_IK} -nkvo", GOOD_IK, IK, GLM),
    Example("sliding-window-kept-whole", "-c 131072 -ngl 99", "-c 4096 -ngl 99", IK, WINDOWED),
    Example("window-cache-refused", f"{FOUR} -sm graph --swa-compress", f"{FOUR} -sm graph", hardware=FOUR_3090),
    Example("numa-unset", TWO_SOCKETS, f"numactl --interleave=all {TWO_SOCKETS} --numa distribute", hardware=DUAL),
    Example("numa-unset", TWO_SOCKETS, f"numactl -N 0 -m 0 {TWO_SOCKETS}", IK, SMALL_MOE, DUAL),
    Example("bound-memory-too-small", f"numactl -m 0 {TWO_SOCKETS}", TWO_SOCKETS, IK, QWEN, LITTLE_NODES),
    Example(
        "bound-memory-too-small", f"numactl -m 0 {TWO_SOCKETS}", f"numactl -m 0-3 {TWO_SOCKETS}", IK, QWEN, LARGE_NODES
    ),
    Example("numa-value-unknown", f"{GOOD_IK} --numa everywhere", f"{GOOD_IK} --numa distribute"),
    Example("mmap-needed", f"{GOOD_IK} -thp", f"GGML_CUDA_NO_PINNED=1 {GOOD_IK} -thp"),
    Example("mmap-needed", f"{GOOD_IK} --defer-experts", GOOD_IK),
    Example("defer-experts-elsewhere", "-c 4096 --defer-experts", "-c 4096", IK, DENSE),
    Example("locked-memory-too-large", f"{GOOD_LLAMA} -lm mlock", GOOD_LLAMA, LLAMA, QWEN, LITTLE_RAM),
    Example("lazy-embeddings", f"{ALL_ON_GPU} -lzm on", ALL_ON_GPU, LLAMA, ("Gemma-4-E4B", "q8_0")),
    Example("lazy-embeddings", f"{GOOD_LLAMA} -lzm on", GOOD_LLAMA, LLAMA),
    Example("newer-flag", f"{GOOD_LLAMA} --moe-cache-mib 4000", GOOD_LLAMA, LLAMA),
    # llama.cpp issues 28455 and 27109
    Example(
        "cache-types-without-kernel", f"{GOOD_LLAMA} -ctk q5_1 -ctv q5_1", f"{GOOD_LLAMA} -ctk q8_0 -ctv q8_0", LLAMA
    ),
    Example("cache-types-without-kernel", f"{GOOD_LLAMA} -ctk q8_0", GOOD_LLAMA, LLAMA),
    # llama.cpp pull 16208; reddit.com/r/LocalLLaMA/comments/1ng0fmv
    Example(
        "cache-without-kernel-yet",
        f"{OLD_OSS} -ctk q4_0 -ctv q4_0",
        f"{OLD_OSS} -ctk f16 -ctv f16",
        LLAMA,
        GPT_OSS,
        build="2025-09-26",
    ),
    Example(
        "cache-without-kernel-yet",
        f"{OLD_OSS} -ctk bf16 -ctv bf16",
        f"{OLD_OSS} -ctk q8_0 -ctv q8_0",
        LLAMA,
        GPT_OSS,
        build="2025-09-27",
    ),
    # llama.cpp issue 23152 and pull 23007
    Example(
        "integrated-graphics-as-card",
        "-c 4096 -ngl 99",
        "HIP_VISIBLE_DEVICES=0 llama-server -m m.gguf -c 4096 -ngl 99",
        LLAMA,
        DENSE_SMALL,
        RX_9070_XT,
        build="b9174",
    ),
    Example("draft-unused", f"{GOOD_IK} -md draft.gguf", f"{GOOD_IK} -md draft.gguf --spec-type draft:n_max=4"),
    Example("draft-unused", f"{GOOD_LLAMA} -md draft.gguf", f"{GOOD_LLAMA} -md draft-mtp.gguf", LLAMA),
    Example("speculation-unknown", f"{GOOD_IK} --spec-type draft-mtp", f"{GOOD_IK} --spec-type ngram_mod", IK, GLM),
    Example("speculation-unknown", f"{GOOD_LLAMA} --spec-type mtp", f"{GOOD_LLAMA} --spec-type draft-mtp", LLAMA, GLM),
    Example("variable-wins", f"LLAMA_ARG_UBATCH=512 {GOOD_IK}", f"LLAMA_ARG_UBATCH=2048 {GOOD_IK}"),
    Example("speculation-refused", f"{GOOD_IK} --spec-type draft", f"{GOOD_IK} --spec-type draft -md a.gguf"),
    Example("speculation-refused", f"{GOOD_IK} --spec-type mtp,ngram-mod", f"{GOOD_IK} --spec-type ngram-mod"),
    Example("router", "llama-server --models-preset models.ini -c 8192", "llama-server -m m.gguf -c 8192", LLAMA),
    Example("ram-grows", f"{MANY_SLOTS}", f"{MANY_SLOTS} -ctxcp 1", LLAMA, HYBRID),
    Example("ram-grows", TIGHT, f"{TIGHT} -cram 0", IK, DENSE_Q8, TIGHT_RAM),
    Example("draft-larger-than-model", f"{GOOD_IK} -md draft.gguf --spec-type draft", GOOD_IK, draft=DENSE),
    Example("pipeline-copies", f"{FULL_LLAMA} -c 49152", FULL_LLAMA, LLAMA, DENSE, TWO_3090),
    Example("fit-with-overrides", f"{GOOD_IK} --fit", GOOD_IK),
    Example("context-shared", f"{GOOD_IK} -np 4", GOOD_IK),
    Example("context-shared", f"{MANY_SLOTS} -np 4", f"{MANY_SLOTS} -np 4 -kvu", LLAMA, HYBRID),
    Example("cache-reuse-without-effect", f"{REUSING}", f"{REUSING} --swa-full", LLAMA, WINDOWED),
    Example("cache-reuse-without-effect", f"{REUSING}", FULL_LLAMA, LLAMA, HYBRID),
    Example("cache-reuse-without-effect", f"{REUSING} -mm mmproj.gguf", REUSING, LLAMA, DENSE_SMALL),
    Example("swa-full-without-effect", f"{FULL_LLAMA} --swa-full", FULL_LLAMA, LLAMA, HYBRID),
    Example("swa-full-without-effect", f"{FULL_LLAMA} --swa-full", FULL_LLAMA, LLAMA, DENSE_SMALL),
    Example("slots-by-default", f"{MANY_SLOTS}", f"{MANY_SLOTS} -np 1", LLAMA, HYBRID),
    Example("logits-of-every-token", LOGITS, f"{LOGITS} -wgt 1", IK, DENSE),
    Example("fewer-experts", f"{GOOD_IK} -ser 4,1", GOOD_IK),
    Example("grouped-routing-without-effect", f"{GOOD_IK} -ger", GOOD_IK),
    Example("graph-split-partial-layers", "-c 4096 -ngl 20 -sm graph", "-c 4096 -ngl 99 -sm graph", IK, GLM, FOUR_3090),
    Example("graph-scheduling-off", f"{FOUR} -sm graph", f"{FOUR} -sm graph -smgs", hardware=FOUR_3090),
    Example("graph-option-without-effect", f"{FOUR} -smgs -grt f16", FOUR, hardware=FOUR_3090),
    Example("graph-option-without-effect", f"{FOUR} -sm graph --max-gpu 4", f"{FOUR} -sm graph", hardware=FOUR_3090),
    Example("reduce-type-unknown", f"{FOUR} -sm graph -grt q4_0", f"{FOUR} -sm graph -grt q8_0", hardware=FOUR_3090),
    Example("card-without-share", f"{FOUR} -ts 1,1,1", f"{FOUR} -ts 1,1,1,1", hardware=FOUR_3090),
    Example("card-hidden", f"CUDA_VISIBLE_DEVICES=0,1,2 {FOUR}", FOUR, hardware=FOUR_3090),
    Example("embeddings-on-gpu", f"{GOOD_IK} -ot token_embd=CUDA0", GOOD_IK, IK, ("Qwen3-235B-A22B", "q2_k")),
    Example("layers-in-ram", "-c 8192 -ngl 5", "-c 8192 -ngl 99 -ot exps=CPU", IK, ("Qwen3-235B-A22B", "q2_k")),
    Example("layers-in-ram", "-c 8192 -ngl 30", "-c 8192 -ngl 99", model=DENSE_SMALL),
    Example("room-for-experts", f"{GOOD_IK} -c 8192", FILLED, IK, ("Qwen3-235B-A22B", "q2_k")),
    Example("layers-on-slower-card", f"{SLOW} -ts 8,12", f"{SLOW} -ts 99,1", IK, DENSE_SMALL, FAST_AND_SLOW),
    Example("copying-loses", GOOD_LLAMA, f"GGML_OP_OFFLOAD_MIN_BATCH=4097 {GOOD_LLAMA}", LLAMA, QWEN, SLOW_LINK),
    Example("host-buffers-off", f"{GOOD_LLAMA} --no-host", GOOD_LLAMA, LLAMA),
    Example("op-numbers-without-experts", f"{GOOD_IK} -op 28,0", f"{GOOD_IK} -op 28,0,31,0"),
    Example("merged-qkv-ignores-overrides", f"{GOOD_IK} -mqkv -ot 'attn_q=CPU'", f"{GOOD_IK} -mqkv"),
    Example("merged-qkv-in-part", "-c 4096 -ngl 99 -mqkv", "-c 4096 -ngl 99", IK, ("Qwen3-32B", "q4_K_M"), TWO_3090),
    Example("more-than-experts-in-ram", GOOD_IK.replace("exps=CPU", "ffn=CPU"), GOOD_IK, IK, GLM),
    Example(
        "micro-batch-small", GOOD_LLAMA.replace("-ub 2048", "-ub 512"), f"{GOOD_LLAMA} -ub 4096 -b 4096", LLAMA, GLM
    ),
    Example("copying-off", f"{GOOD_LLAMA} --no-op-offload", GOOD_LLAMA, LLAMA, GLM),
    Example("mla-slower", f"{FOUR} -b 2048 -c 32768 -mla 1", f"{FOUR} -c 32768 -mla 3", IK, R1, FOUR_3090),
    Example("main-gpu-without-effect", f"{FOUR} -mg 1", f"{FOUR} -mg 0", hardware=FOUR_3090),
    Example("cuda-key-unknown", f"{GOOD_IK} -cuda graph=0", f"{GOOD_IK} -cuda graphs=0"),
    Example(
        "bench-rules-by-semicolon",
        "llama-bench -m m.gguf -ngl 99 -ot 'blk.1.=CPU,blk.2.=CPU'",
        "llama-bench -m m.gguf -ngl 99 -ot 'blk.1.=CPU;blk.2.=CPU'",
        LLAMA,
    ),
    Example("no-server-for-model", EMBED, EMBED.replace("server", "cli"), LLAMA, ("LLaDA-8B", "q4_K_M")),
    Example("endpoint-not-enabled", EMBED, f"{EMBED} --embeddings", LLAMA, ("Qwen3-Embedding-0.6B", "q8_0")),
    Example("endpoint-not-enabled", EMBED, f"LLAMA_ARG_EMBEDDINGS=1 {EMBED}", IK, ("Qwen3-Embedding-0.6B", "q8_0")),
    Example("endpoint-not-enabled", f"{EMBED} --jinja", f"{EMBED} --rerank", LLAMA, ("Qwen3-Reranker-0.6B", "q8_0")),
    Example("input-beyond-micro-batch", f"{EMBED} --embedding", f"{EMBED} --embedding -b 8192 -ub 8192", LLAMA, BERT),
    Example("writes-no-text", f"{EMBED} --embedding", EMBED.replace("server", "bench"), LLAMA, BERT),
)
