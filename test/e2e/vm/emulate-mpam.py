# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits a Linux 7.3 tree (arm64) so that the MPAM driver and resctrl find a CPU and caches with MPAM on a machine without.

Each CPU has an L3 with one MSC (memory system component, the hardware that has the registers of MPAM): portion bitmaps of 16 bits
(CPOR), maximum bandwidth (MBW_MAX), monitors of occupancy (CSU) and bandwidth (MBWU). The kernel must find the L3 caches in the
device tree, see vm-arm64.sh. On the kernel's command line: mpam_emu.partids=16 .pmgs=4 .ways=16 .bwa_wd=8 .csu=4 .cntrs=8;
bwa_wd is the number of bits of MBW_MAX (0: no bandwidth control), cntrs the number of MBWU monitors (0: none). The ID of an L3 is the
number of its CPU << mpam_emu.id_shift=0; with 16, the IDs are as on CPUs whose clusters are in the third byte of MPIDR (0, 65536, …).
With mpam_emu.expert=0, the kernel refuses CDP, as one without CONFIG_EXPERT.

Occupancy and bandwidth are made up, and bandwidth grows. A PARTID and PMG have occupancy until no task has run with them for
mpam_emu.evict=5 s (0: for ever), so that the kernel can use them again. To set values (of all caches, or of one):
  echo "PARTID PMG EVENT VALUE [CACHE]" > /sys/module/mpam_emu/parameters/count
EVENT is llc_occupancy or mbm_total_bytes; VALUE is a number of bytes, +N (grows by N bytes a second from now), auto,
or unavailable (NRDY: the kernel then shows 0).
`mount -o debug` shows PARTID and PMG of a group in ctrl_hw_id and mon_hw_id.
/sys/module/mpam_emu/parameters/regs shows CPBM and MBW_MAX as they are in the registers of each MSC and PARTID.
"""
def edit(name, *pairs):
    text = open(name).read()
    for old, new in pairs:
        assert old in text, (name, old)
        text = text.replace(old, new)
    open(name, "w").write(text)

HEADER = """/* SPDX-License-Identifier: GPL-2.0 */
struct mpam_msc;
extern unsigned int emu_partids, emu_pmgs, emu_id_shift, emu_expert;
#define PARTIDS 64
#define PMGS 16
u32 emu_mpam_read(struct mpam_msc *msc, u16 reg);
void emu_mpam_write(struct mpam_msc *msc, u16 reg, u32 val);
int emu_mpam_parse_resources(struct mpam_msc *msc);
"""

EMU = r"""// SPDX-License-Identifier: GPL-2.0
/* The MSCs that do not exist: one for the L3 of each CPU. */
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/platform_device.h>
#include "mpam_internal.h"
#include "mpam_emu.h"

unsigned int emu_partids = 16, emu_pmgs = 4, emu_id_shift, emu_expert = 1;
u64 emu_ran[PARTIDS * PMGS]; /* when a task last ran with PARTID * PMGS + PMG */
static unsigned int ways = 16, bwa_wd = 8, csu = 4, ncntrs = 8, evict = 5;
module_param_named(partids, emu_partids, uint, 0444);
module_param_named(pmgs, emu_pmgs, uint, 0444);
module_param_named(id_shift, emu_id_shift, uint, 0444);
module_param_named(expert, emu_expert, uint, 0644);
module_param(ways, uint, 0444);
module_param(bwa_wd, uint, 0444);
module_param(csu, uint, 0444);
module_param(evict, uint, 0644);
module_param_named(cntrs, ncntrs, uint, 0444);

#define MSCS 8
#define MONS 64
enum { AUTO, SET, UNAVAILABLE };
static struct emu_count { int mode; u64 base, rate, since; } counts[MSCS][2][PARTIDS][PMGS];
static struct emu_mon { u32 flt, ctl; u64 base; bool nrdy; } mons[MSCS][2][MONS];
static struct emu_msc { u32 part_sel, mon_sel, cpbm[PARTIDS], mbw_max[PARTIDS]; } mscs[MSCS];

/* What a PARTID and PMG has used, in bytes. */
static u64 count(int msc, bool mbwu, u32 partid, u32 pmg)
{
	struct emu_count *n = &counts[msc][mbwu][partid % PARTIDS][pmg % PMGS];
	u64 weight = partid * emu_pmgs + pmg + 1, ran = emu_ran[partid % PARTIDS * PMGS + pmg % PMGS];

	if (n->mode == SET)
		return n->base + n->rate * (get_jiffies_64() - n->since) / HZ;
	if (mbwu)
		return (get_jiffies_64() - INITIAL_JIFFIES) * weight * 65536;
	return ran && (!evict || get_jiffies_64() < ran + evict * HZ) ? (weight + 1) * 262144 : 0;
}

static u64 monitor(int msc, bool mbwu)
{
	struct emu_mon *m = &mons[msc][mbwu][mscs[msc].mon_sel % MONS];
	u32 partid = m->flt & 0xffff, pmg = (m->flt >> 16) & 0xff;

	if (counts[msc][mbwu][partid % PARTIDS][pmg % PMGS].mode == UNAVAILABLE)
		return MSMON___L_NRDY;
	return (m->ctl & MSMON_CFG_x_CTL_EN ? count(msc, mbwu, partid, pmg) - m->base : 0) | (m->nrdy ? MSMON___L_NRDY : 0);
}

u32 emu_mpam_read(struct mpam_msc *msc, u16 reg)
{
	int id = msc->id;
	u64 value;

	switch (reg) {
	case MPAMF_AIDR: return MPAM_ARCHITECTURE_V1;
	case MPAMF_IDR:
		return (emu_partids - 1) | (emu_pmgs - 1) << 16 | MPAMF_IDR_HAS_CPOR_PART |
		       (bwa_wd ? MPAMF_IDR_HAS_MBW_PART : 0) | (csu || ncntrs ? MPAMF_IDR_HAS_MSMON : 0);
	case MPAMF_CPOR_IDR: return ways;
	case MPAMF_MBW_IDR: return bwa_wd | MPAMF_MBW_IDR_HAS_MAX;
	case MPAMF_MSMON_IDR: return (csu ? MPAMF_MSMON_IDR_MSMON_CSU : 0) | (ncntrs ? MPAMF_MSMON_IDR_MSMON_MBWU : 0);
	case MPAMF_CSUMON_IDR: return csu;
	case MPAMF_MBWUMON_IDR: return ncntrs | MPAMF_MBWUMON_IDR_HAS_LONG | MPAMF_MBWUMON_IDR_LWD;
	case MSMON_CFG_CSU_FLT: return mons[id][0][mscs[id].mon_sel % MONS].flt;
	case MSMON_CFG_CSU_CTL: return mons[id][0][mscs[id].mon_sel % MONS].ctl;
	case MSMON_CFG_MBWU_FLT: return mons[id][1][mscs[id].mon_sel % MONS].flt;
	case MSMON_CFG_MBWU_CTL: return mons[id][1][mscs[id].mon_sel % MONS].ctl;
	case MSMON_CSU:
		value = monitor(id, false);
		return (value & MSMON___VALUE) | (value & MSMON___L_NRDY ? MSMON___NRDY : 0);
	case MSMON_MBWU_L: return monitor(id, true);
	case MSMON_MBWU_L + 4: return monitor(id, true) >> 32;
	}
	return 0;
}

void emu_mpam_write(struct mpam_msc *msc, u16 reg, u32 val)
{
	struct emu_msc *m = &mscs[msc->id];
	struct emu_mon *mon = &mons[msc->id][reg >= MSMON_CFG_MBWU_FLT && reg != MSMON_CSU][m->mon_sel % MONS];

	switch (reg) {
	case MPAMCFG_PART_SEL: m->part_sel = val & 0xffff; break;
	case MPAMCFG_CPBM: m->cpbm[m->part_sel % PARTIDS] = val; break;
	case MPAMCFG_MBW_MAX: m->mbw_max[m->part_sel % PARTIDS] = val & GENMASK(15, 16 - bwa_wd); break;
	case MSMON_CFG_MON_SEL: m->mon_sel = val & 0xffff; break;
	case MSMON_CFG_CSU_FLT: case MSMON_CFG_MBWU_FLT: mon->flt = val; break;
	case MSMON_CFG_CSU_CTL: case MSMON_CFG_MBWU_CTL: mon->ctl = val; break;
	case MSMON_CSU: mon->nrdy = val & MSMON___NRDY; break;
	case MSMON_MBWU_L: mon->base = count(msc->id, true, mon->flt & 0xffff, (mon->flt >> 16) & 0xff); break;
	}
}

int emu_mpam_parse_resources(struct mpam_msc *msc)
{
	return mpam_ris_create(msc, 0, MPAM_CLASS_CACHE, 3, msc->id << emu_id_shift);
}

static int __init emu_mpam_devices(void)
{
	struct resource res = DEFINE_RES_MEM_NAMED(0, SZ_64K, "MPAM:MSC");
	int cpu;

	for_each_possible_cpu(cpu) {
		res.start = 0x0f000000 + cpu * SZ_64K; /* nothing is there in QEMU's machine virt, and nobody reads it */
		res.end = res.start + SZ_64K - 1;
		if (cpu < MSCS)
			platform_device_register_simple("mpam_msc", cpu, &res, 1);
	}
	return 0;
}
subsys_initcall_sync(emu_mpam_devices);

static int set_count(const char *buf, const struct kernel_param *kp)
{
	struct emu_count n = { .since = get_jiffies_64() };
	char event[16], value[24];
	u32 partid, pmg, only = MSCS, d;
	bool mbwu;

	if (sscanf(buf, "%u %u %15s %23s %u", &partid, &pmg, event, value, &only) < 4 || partid >= PARTIDS || pmg >= PMGS)
		return -EINVAL;
	mbwu = !strcmp(event, "mbm_total_bytes");
	if (!mbwu && strcmp(event, "llc_occupancy"))
		return -EINVAL;
	if (!strcmp(value, "unavailable")) n.mode = UNAVAILABLE;
	else if (strcmp(value, "auto")) {
		n.mode = SET;
		if (kstrtou64(value + (value[0] == '+'), 0, value[0] == '+' ? &n.rate : &n.base))
			return -EINVAL;
	}
	for (d = 0; d < MSCS; d++)
		if (only == MSCS || only == d) {
			if (n.rate)
				n.base = count(d, mbwu, partid, pmg);
			counts[d][mbwu][partid][pmg] = n;
		}
	return 0;
}

static int get_regs(char *buf, const struct kernel_param *kp)
{
	int msc, partid, n = 0;

	for (msc = 0; msc < num_possible_cpus() && msc < MSCS; msc++)
		for (partid = 0; partid < emu_partids; partid++)
			n += scnprintf(buf + n, PAGE_SIZE - n, "msc %d partid %d cpbm %x mbw_max %04x\n", msc, partid,
				       mscs[msc].cpbm[partid % PARTIDS], mscs[msc].mbw_max[partid % PARTIDS]);
	return n;
}
static const struct kernel_param_ops count_ops = { .set = set_count }, regs_ops = { .get = get_regs };
module_param_cb(count, &count_ops, NULL, 0200);
module_param_cb(regs, &regs_ops, NULL, 0444);
"""
P = "drivers/resctrl/"
open(P + "mpam_emu.h", "w").write(HEADER)
open(P + "mpam_emu.c", "w").write(EMU)
open(P + "Makefile", "a").write("\nobj-$(CONFIG_ARM64_MPAM_DRIVER)\t+= mpam_emu.o\n")
edit(P + "mpam_devices.c",
     ('#include "mpam_internal.h"', '#include "mpam_internal.h"\n#include "mpam_emu.h"'),
     ("return readl_relaxed(msc->mapped_hwpage + reg);", "return emu_mpam_read(msc, reg);"),
     ("writel_relaxed(val, msc->mapped_hwpage + reg);", "emu_mpam_write(msc, reg, val);"),
     ("fw_num_msc = acpi_mpam_count_msc();", "fw_num_msc = num_possible_cpus();"),
     ("err = acpi_mpam_parse_resources(msc, plat_data);", "err = emu_mpam_parse_resources(msc);"),
     ("\tvoid *plat_data = pdev->dev.platform_data;\n", ""),
     ("return acpi_pptt_get_cpumask_from_cache_id(cache_id, affinity);", "cpumask_set_cpu(cache_id >> emu_id_shift, affinity);\n\treturn 0;"),
     ("acpi_pptt_get_cpus_from_container(affinity_id, &msc->accessibility);", "cpumask_copy(&msc->accessibility, cpu_possible_mask);"))
edit(P + "mpam_resctrl.c",
     ('#include "mpam_internal.h"', '#include "mpam_internal.h"\n#include "mpam_emu.h"'),
     ("!IS_ENABLED(CONFIG_EXPERT)", "!emu_expert"))
edit("drivers/base/cacheinfo.c",
     ("static void cache_of_set_id(", "extern unsigned int emu_id_shift;\nstatic void cache_of_set_id("),
     ("this_leaf->id = min_id;", "this_leaf->id = min_id << emu_id_shift;"))
# The CPU: no register of MPAM is touched.
K = "arch/arm64/kernel/"
edit(K + "cpufeature.c",
     ("\tif (!detect_ftr_has_mpam())\n\t\treturn false;\n\n\t/* Check firmware actually enabled MPAM on this cpu. */\n\treturn (read_sysreg_s(SYS_MPAM1_EL1) & MPAM1_EL1_MPAMEN);", "\treturn true;"),
     ("\twrite_sysreg_s(regval | MPAM1_EL1_MPAMEN, SYS_MPAM1_EL1);\n\tif (cpus_have_cap(ARM64_SME))", "\treturn;\n\tif (cpus_have_cap(ARM64_SME))"),
     ("if (system_supports_mpam())\n\t\tverify_mpam_capabilities();", "if (0)\n\t\tverify_mpam_capabilities();"))
edit(K + "mpam.c",
     ("u64 mpamidr = read_sanitised_ftr_reg(SYS_MPAMIDR_EL1);\n\tu16 partid_max = FIELD_GET(MPAMIDR_EL1_PARTID_MAX, mpamidr);\n\tu8 pmg_max = FIELD_GET(MPAMIDR_EL1_PMG_MAX, mpamidr);",
      "extern unsigned int emu_partids, emu_pmgs;\n\tu16 partid_max = emu_partids - 1;\n\tu8 pmg_max = emu_pmgs - 1;"),
     ("cpu_pm_register_notifier(&mpam_pm_nb);", "(void)mpam_pm_nb;"))
edit("arch/arm64/include/asm/mpam.h",
     ("extern u64 arm64_mpam_global_default;", "extern u64 arm64_mpam_global_default;\nextern u64 emu_ran[];"),
     ("\toldregval = READ_ONCE(", "\temu_ran[FIELD_GET(MPAM0_EL1_PARTID_D, regval) % 64 * 16 + FIELD_GET(MPAM0_EL1_PMG_D, regval) % 16] = jiffies_64;\n\toldregval = READ_ONCE("),
     ("\twrite_sysreg_s(regval | MPAM1_EL1_MPAMEN, SYS_MPAM1_EL1);\n\tif (system_supports_sme())\n\t\twrite_sysreg_s(regval & (MPAMSM_EL1_PARTID_D | MPAMSM_EL1_PMG_D), SYS_MPAMSM_EL1);\n\tisb();\n", ""),
     ("\twrite_sysreg_s(regval, SYS_MPAM0_EL1);\n", ""))
