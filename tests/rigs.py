"""Machines that people asked about, by name."""

from __future__ import annotations

from service.engine.hardware import Cpu, Gpu, Hardware, Ram

TWO_5090_TWO_4090 = Hardware(
    gpus=[Gpu(name="RTX 5090", count=2), Gpu(name="RTX 4090", count=2)],
    cpu=Cpu(model="Xeon Platinum 8480+"),
    ram=Ram(total_gb=512, type="DDR5", channels=8, mts=4800),
)
ONE_3090_DESKTOP = Hardware(
    gpus=[Gpu(name="RTX 3090")],
    cpu=Cpu(model="Ryzen 9 7950X"),
    ram=Ram(total_gb=128, type="DDR5", channels=2, mts=5600),
)
LAPTOP_6GB = Hardware(
    gpus=[Gpu(name="RTX 2060")], cpu=Cpu(model="Core i7-9700K"), ram=Ram(total_gb=32, type="DDR4", channels=2, mts=2666)
)
TWO_EPYC_NO_GPU = Hardware(
    gpus=[],
    cpu=Cpu(model="EPYC 9355", sockets=2, physical_cores=64),
    ram=Ram(total_gb=768, type="DDR5", channels=24, mts=4800),
)
MACBOOK_64 = Hardware(gpus=[Gpu(name="Apple M3 Max")], ram=Ram(total_gb=64), os="macos")
MAC_STUDIO = Hardware(gpus=[Gpu(name="Apple M3 Ultra")], ram=Ram(total_gb=512), os="macos")
RADEON = Hardware(
    gpus=[Gpu(name="RX 7900 XTX")],
    cpu=Cpu(model="Ryzen 9 7950X"),
    ram=Ram(total_gb=64, type="DDR5", channels=2, mts=5600),
)
MIXED_MAKERS = Hardware(gpus=[Gpu(name="RTX 3090"), Gpu(name="RX 7900 XTX")], ram=Ram(total_gb=64))
EIGHT_3090 = Hardware(
    gpus=[Gpu(name="RTX 3090", count=8)],
    cpu=Cpu(model="EPYC 7713"),
    ram=Ram(total_gb=256, type="DDR4", channels=8, mts=3200),
)
