# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits a Linux 7.3 tree so that resctrl finds a CPU with RDT on a machine without one.

Intel (QEMU `-cpu max,vendor=GenuineIntel`): L3 12 ways, 2 of them shared with I/O, 16 CLOSIDs, CDP; L2 20 ways, 8 CLOSIDs; MB in
per cent, min 10, step 10, 8 CLOSIDs; telemetry (PERF_PKG, energy and perf). AMD (`-cpu max`): the same caches, all with 16
CLOSIDs; MB and SMBA absolute up to 2048; BMEC; ABMC with 8 counters in each L3; io_alloc (SDCIAE).
`rdt=!abmc,!bmec,!smba,!sdciae,!energy,!perf,!l2cat,…` takes features away, as on a real kernel.
`rdt_emu.cntrs=8 rdt_emu.rmids=32 rdt_emu.telemetry_rmids=576 rdt_emu.snc=1` on the kernel's command line change the numbers; fewer than
576 RMIDs with telemetry need `rdt=energy,perf` too; snc=2 (Intel) makes two sub-NUMA nodes in each L3, of the cores with even and odd
numbers: VM_SMP=4,sockets=2,cores=2. rdt_emu.l2cdp=1 (Intel) adds CDP of L2.

Monitoring: occupancy and bandwidth are made up, and bandwidth grows. An RMID has occupancy once a task has run with it; with
rdt_emu.evict=N, it loses its occupancy when no task has run with it for N s (so that the kernel can use it again). To set values (of
all L3s, or of one domain):
  echo "RMID EVENT VALUE [DOMAIN]" > /sys/module/rdt_emu/parameters/count
EVENT is llc_occupancy, mbm_total_bytes or mbm_local_bytes; VALUE is a number of bytes, +N (grows by N bytes a second from now),
unavailable, error, or auto. Values are multiples of 64 KiB, as in hardware. A counter of ABMC counts from its assignment.
`mount -o debug` shows the RMID of a group in mon_hw_id. Writes to the MSRs of allocation go nowhere.
"""
P = "arch/x86/kernel/cpu/resctrl/"

def edit(name, *pairs):
    text = open(name).read()
    for old, new in pairs:
        assert old in text, (name, old)
        text = text.replace(old, new)
    open(name, "w").write(text)

# What resctrl asks the CPU goes to rdt_emu.c.
HOOKS = """
extern unsigned int emu_rmids, emu_snc;
bool emu_has(int feature);
void emu_cpuid_count(u32 op, u32 sub, u32 *a, u32 *b, u32 *c, u32 *d);
u64 emu_rdmsr(u32 msr);
void emu_wrmsr(u32 msr, u64 val);
int emu_node(int cpu);
struct pmt_feature_group *emu_telemetry(int feature);
u64 emu_telemetry_read(void __iomem *addr);
#ifndef RDT_EMU
#undef cpu_has
#define cpu_has(c, f) emu_has(f)
#define cpuid_count emu_cpuid_count
#define cpuid_ebx(op) (emu_rmids - 1)
#undef rdmsrq
#define rdmsrq(msr, val) ((val) = emu_rdmsr(msr))
#define wrmsrq emu_wrmsr
#define msr_set_bit(msr, bit) emu_wrmsr(msr, emu_rdmsr(msr) | BIT_ULL(bit))
#define msr_clear_bit(msr, bit) emu_wrmsr(msr, emu_rdmsr(msr) & ~BIT_ULL(bit))
#endif
"""

EMU = r"""// SPDX-License-Identifier: GPL-2.0-only
/* A CPU with RDT that does not exist: CPUID, the MSRs of monitoring, telemetry. */
#define RDT_EMU
#include <linux/cacheinfo.h>
#include <linux/intel_pmt_features.h>
#include <linux/intel_vsec.h>
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <asm/cpuid/api.h>
#include <asm/msr.h>
#include "internal.h"

unsigned int emu_rmids = 32, emu_snc = 1;
static unsigned int cntrs = 8, telemetry_rmids = 576, l2cdp, evict;
module_param(cntrs, uint, 0444);
module_param(telemetry_rmids, uint, 0444);
module_param(l2cdp, uint, 0444);
module_param(evict, uint, 0644);
module_param_named(rmids, emu_rmids, uint, 0444);
module_param_named(snc, emu_snc, uint, 0444);

#define DOMS 8
#define RMIDS 256
#define CNTRS 32
#define UNIT 65536
enum { AUTO, SET, UNAVAILABLE, ERROR };
u64 emu_ran[RMIDS]; /* when a task last ran with the RMID */
static struct emu_count { int mode; u64 base, rate, since, reset; } counts[DOMS][4][RMIDS];
static struct { u32 rmid, evt; u64 base; bool on; } abmc[DOMS][CNTRS];
static u64 ext_cfg, evt_cfg[DOMS][2] = { [0 ... DOMS - 1] = { 0x7f, 0x15 } };
static DEFINE_PER_CPU(u64, evtsel);

static bool amd(void) { return boot_cpu_data.x86_vendor != X86_VENDOR_INTEL; }
static u64 ticks(void) { return get_jiffies_64() - INITIAL_JIFFIES; }
static int dom(void) { return get_cpu_cacheinfo_id(raw_smp_processor_id(), 3) & (DOMS - 1); }
int emu_node(int cpu)
{
	return get_cpu_cacheinfo_id(cpu, 3) * emu_snc + topology_core_id(cpu) % emu_snc;
}

bool emu_has(int f)
{
	switch (f) {
	case X86_FEATURE_RDT_A: case X86_FEATURE_CAT_L3: case X86_FEATURE_CDP_L3: case X86_FEATURE_CAT_L2: case X86_FEATURE_MBA:
	case X86_FEATURE_CQM_LLC: case X86_FEATURE_CQM_OCCUP_LLC: case X86_FEATURE_CQM_MBM_TOTAL: case X86_FEATURE_CQM_MBM_LOCAL:
		return true;
	case X86_FEATURE_CDP_L2:
		return !amd() && l2cdp;
	case X86_FEATURE_SMBA: case X86_FEATURE_BMEC: case X86_FEATURE_ABMC: case X86_FEATURE_SDCIAE:
		return amd();
	}
	return boot_cpu_has(f);
}

void emu_cpuid_count(u32 op, u32 sub, u32 *a, u32 *b, u32 *c, u32 *d)
{
	*a = *b = *c = *d = 0;
	if (op == 0x10 && sub == 1) { *a = 11; *b = 0xc00; *d = 15; }
	else if (op == 0x10 && sub == 2) { *a = 19; *d = amd() ? 15 : 7; }
	else if (op == 0x10 && sub == 3) { *a = 89; *c = 4; *d = 7; }
	else if (op == 0x80000020 && sub <= 2) { *a = 11; *d = 15; }
	else if (op == 0x80000020 && sub == 3) { *c = 0x7f; }
	else if (op == 0x80000020 && sub == 5) { *b = cntrs - 1; }
	else if (op == 0xf && sub == 1) { *b = UNIT; *c = emu_rmids - 1; *d = 7; }
	else cpuid_count(op, sub, a, b, c, d);
}

/* What RMID has used since the machine started, in units. */
static u64 count(int dom, u32 evt, u32 rmid)
{
	struct emu_count *n;

	if (evt < 1 || evt > 3 || rmid >= RMIDS)
		return RMID_VAL_ERROR;
	n = &counts[dom][evt][rmid];
	switch (n->mode) {
	case SET: return (n->base + n->rate * (get_jiffies_64() - n->since) / HZ) / (UNIT / emu_snc);
	case UNAVAILABLE: return RMID_VAL_UNAVAIL;
	case ERROR: return RMID_VAL_ERROR;
	}
	if (evt > 1)
		return ticks() * (rmid + 1) / (evt - 1);
	return emu_ran[rmid] && (!evict || get_jiffies_64() < emu_ran[rmid] + evict * HZ) ? 16 * (rmid + 1) : 0;
}

/* The counters begin at 0 again when the CPU begins or ends to use ABMC. */
static void reset_counts(void)
{
	u32 d, evt, rmid;
	u64 n;

	for (d = 0; d < DOMS; d++)
		for (evt = 2; evt <= 3; evt++)
			for (rmid = 0; rmid < RMIDS; rmid++) {
				n = count(d, evt, rmid);
				counts[d][evt][rmid].reset = n >= RMID_VAL_UNAVAIL ? 0 : n;
			}
}

u64 emu_rdmsr(u32 msr)
{
	u64 sel = this_cpu_read(evtsel), n;
	u32 id = sel >> 32;

	switch (msr) {
	case MSR_IA32_L3_QOS_EXT_CFG: return ext_cfg;
	case MSR_IA32_EVT_CFG_BASE: case MSR_IA32_EVT_CFG_BASE + 1: return evt_cfg[dom()][msr - MSR_IA32_EVT_CFG_BASE];
	case MSR_IA32_QM_CTR:
		if (!(sel & ABMC_EXTENDED_EVT_ID)) {
			n = count(dom(), sel & 0xff, id);
			return n >= RMID_VAL_UNAVAIL ? n : n - counts[dom()][sel & 3][id].reset;
		}
		if (id >= CNTRS || !abmc[dom()][id].on)
			return RMID_VAL_ERROR;
		n = count(dom(), abmc[dom()][id].evt, abmc[dom()][id].rmid);
		return n >= RMID_VAL_UNAVAIL ? n : n - abmc[dom()][id].base;
	}
	return 0;
}

void emu_wrmsr(u32 msr, u64 val)
{
	union l3_qos_abmc_cfg cfg = { .full = val };
	u32 evt = cfg.split.bw_type & READS_TO_REMOTE_MEM ? 2 : 3, id = cfg.split.cntr_id, rmid = cfg.split.bw_src;
	u64 n;

	switch (msr) {
	case MSR_IA32_QM_EVTSEL: this_cpu_write(evtsel, val); break;
	case MSR_IA32_L3_QOS_EXT_CFG:
		if ((ext_cfg ^ val) & BIT(ABMC_ENABLE_BIT))
			reset_counts();
		ext_cfg = val;
		break;
	case MSR_IA32_EVT_CFG_BASE: case MSR_IA32_EVT_CFG_BASE + 1: evt_cfg[dom()][msr - MSR_IA32_EVT_CFG_BASE] = val; break;
	case MSR_IA32_L3_QOS_ABMC_CFG:
		n = count(dom(), evt, rmid);
		abmc[dom()][id].rmid = rmid;
		abmc[dom()][id].evt = evt;
		abmc[dom()][id].base = n >= RMID_VAL_UNAVAIL ? 0 : n;
		abmc[dom()][id].on = cfg.split.cntr_en;
	}
}

static int set_count(const char *buf, const struct kernel_param *kp)
{
	static const char * const events[] = { "", "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes" };
	struct emu_count n = { .since = get_jiffies_64() };
	char event[16], value[24];
	u32 rmid, only = DOMS;
	int evt, d;

	if (sscanf(buf, "%u %15s %23s %u", &rmid, event, value, &only) < 3 || rmid >= RMIDS)
		return -EINVAL;
	evt = match_string(events, ARRAY_SIZE(events), event);
	if (evt < 1)
		return -EINVAL;
	if (!strcmp(value, "unavailable")) n.mode = UNAVAILABLE;
	else if (!strcmp(value, "error")) n.mode = ERROR;
	else if (strcmp(value, "auto")) {
		n.mode = SET;
		if (kstrtou64(value + (value[0] == '+'), 0, value[0] == '+' ? &n.rate : &n.base))
			return -EINVAL;
	}
	for (d = 0; d < DOMS; d++) {
		if (only != DOMS && only != d)
			continue;
		if (n.rate) {
			u64 now = count(d, evt, rmid);
			n.base = now < RMID_VAL_UNAVAIL ? now * (UNIT / emu_snc) : 0;
		}
		counts[d][evt][rmid] = n;
	}
	return 0;
}
static const struct kernel_param_ops count_ops = { .set = set_count };
module_param_cb(count, &count_ops, NULL, 0200);

#ifdef CONFIG_X86_CPU_RESCTRL_INTEL_AET
/* One telemetry region for each package; its address stands for nothing but the index of the counter. */
struct pmt_feature_group *emu_telemetry(int feature)
{
	bool perf = feature == FEATURE_PER_RMID_PERF_TELEM;
	struct pmt_feature_group *g;

	if (amd())
		return NULL;
	g = kzalloc(struct_size(g, regions, topology_max_packages()), GFP_KERNEL);
	for (; g && g->count < topology_max_packages(); g->count++)
		g->regions[g->count] = (struct telemetry_region){
			.plat_info.package_id = g->count, .addr = (void __iomem *)0x100000UL, .num_rmids = telemetry_rmids,
			.guid = perf ? 0x26557651 : 0x26696143, .size = (576 * (perf ? 7 : 2) + 3) * sizeof(u64) };
	return g;
}

u64 emu_telemetry_read(void __iomem *addr)
{
	return BIT_ULL(63) | ticks() * (((unsigned long)addr & 0xfffff) / 8 + 1);
}
#endif
"""
open(P + "rdt_emu.c", "w").write(EMU)
edit(P + "Makefile", ("+= ctrlmondata.o", "+= ctrlmondata.o rdt_emu.o"))
text = open(P + "internal.h").read()
end = text.rindex("#endif")
open(P + "internal.h", "w").write(text[:end] + HOOKS + text[end:])
edit("arch/x86/include/asm/resctrl.h",
     ("DECLARE_PER_CPU(struct resctrl_pqr_state, pqr_state);", "DECLARE_PER_CPU(struct resctrl_pqr_state, pqr_state);\nextern u64 emu_ran[];"),
     ("\t\twrmsrq(MSR_IA32_PQR_ASSOC, val.q);", "\t\twrmsrq(MSR_IA32_PQR_ASSOC, val.q);\n\t\temu_ran[rmid & 255] = jiffies_64;"))
edit(P + "core.c", ("return cpu_to_node(cpu);", "return emu_node(cpu);"))
edit(P + "monitor.c",
     ("ret = topology_num_nodes_per_package();", "ret = emu_snc;"),
     ("resctrl_rmid_realloc_limit = boot_cpu_data.x86_cache_size * 1024;", "resctrl_rmid_realloc_limit = 16 << 20;"),
     ("!x86_match_cpu(snc_cpu_ids)", "!emu_snc"),
     ("static const struct x86_cpu_id snc_cpu_ids[]", "static const struct x86_cpu_id __maybe_unused snc_cpu_ids[]"),
     ("cpu_to_node(cpu) % snc_nodes_per_l3_cache", "emu_node(cpu) % snc_nodes_per_l3_cache"))
edit(P + "intel_aet.c",
     ("intel_pmt_get_regions_by_feature(pfid)", "emu_telemetry(pfid)"),
     ("intel_pmt_put_feature_group(p)", "kfree(p)"),
     ("intel_pmt_put_feature_group((*peg)->pfg)", "kfree((*peg)->pfg)"),
     ("= readq(", "= emu_telemetry_read("))
edit("arch/x86/Kconfig", ("CPU_SUP_INTEL && INTEL_PMT_TELEMETRY=y && INTEL_TPMI=y", "CPU_SUP_INTEL"))
