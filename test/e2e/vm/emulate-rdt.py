# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits a Linux 6.12 tree, the working directory, so that resctrl finds a CPU with RDT on a machine without one.

The edits change only the code with which resctrl queries the CPU. They do not change the other code of resctrl.

Intel (QEMU `-cpu max,vendor=GenuineIntel`): L3 of 12 ways, 2 of them shared with I/O, 16 CLOSIDs; L2 of 20 ways, 8 CLOSIDs;
MB in per cent, at least 10, in steps of 10, 8 CLOSIDs. AMD (`-cpu max`): the same caches; MB absolute, up to 2048, 16 CLOSIDs.
Monitoring: 32 RMIDs. The edited code makes up the counters: the occupancy of an RMID is constant, and bandwidth grows. Writes to the
MSRs have no effect. The occupancy of every RMID except 0 is at least 2 MiB, the default of max_threshold_occupancy. Therefore the kernel
never frees the RMIDs of removed groups. A test that needs these RMIDs writes 64 MiB, the largest possible value, to the file
max_threshold_occupancy: the occupancy of every RMID is lower.
"""
RESCTRL = "arch/x86/kernel/cpu/resctrl/"

CPUID = """
static inline void emulated_cpuid_count(u32 op, u32 sub, u32 *a, u32 *b, u32 *c, u32 *d)
{
	*a = *b = *c = *d = 0;
	if (op == 0x10 && sub == 1) { *a = 11; *b = 0xc00; *d = 15; }
	else if (op == 0x10 && sub == 2) { *a = 19; *d = 7; }
	else if (op == 0x10 && sub == 3) { *a = 89; *c = 4; *d = 7; }
	else if (op == 0x80000020 && sub == 1) { *a = 11; *d = 15; }
	else if (op == 0xf && sub == 1) { *b = 65536; *c = 31; *d = 7; }
	else cpuid_count(op, sub, a, b, c, d);
}

static inline bool emulated_has(int feature)
{
	switch (feature) {
	case X86_FEATURE_RDT_A: case X86_FEATURE_CAT_L3: case X86_FEATURE_CDP_L3: case X86_FEATURE_CAT_L2: case X86_FEATURE_MBA:
	case X86_FEATURE_CQM_OCCUP_LLC: case X86_FEATURE_CQM_MBM_TOTAL: case X86_FEATURE_CQM_MBM_LOCAL:
		return true;
	}
	return boot_cpu_has(feature);
}

"""

COUNTER = """
	msr_val = (eventid == QOS_L3_OCCUP_EVENT_ID) ? 16 * (prmid + 1) : (u64)jiffies * (prmid + 1);"""


def edit(name, *replacements):
    """Replaces text in a file of resctrl. If the file lacks the text, because the kernel has changed, edit fails."""
    with open(RESCTRL + name) as file:
        text = file.read()
    for old, new in replacements:
        if old not in text:
            raise SystemExit(f"{RESCTRL + name}: not found: {old!r}; adapt emulate-rdt.py to this kernel")
        text = text.replace(old, new)
    with open(RESCTRL + name, "w") as file:
        file.write(text)


def main():
    first_definition = "static DEFINE_MUTEX(domain_list_lock);"
    with open(RESCTRL + "core.c") as file:
        if "DEFINE_MUTEX(rdtgroup_mutex);" in file.read():
            first_definition = "DEFINE_MUTEX(rdtgroup_mutex);"
    edit("core.c",
         ("cpuid_count(0x00000010", "emulated_cpuid_count(0x00000010"),
         ("cpuid_count(0x80000020, subleaf", "emulated_cpuid_count(0x80000020, subleaf"),
         ("cpuid_count(0xf, 1", "emulated_cpuid_count(0xf, 1"),
         ("bool ret = boot_cpu_has(flag);", "bool ret = emulated_has(flag);"),
         ("if (!boot_cpu_has(X86_FEATURE_RDT_A))", "if (!emulated_has(X86_FEATURE_RDT_A))"),
         ("if (!cpu_has(c, X86_FEATURE_CQM_LLC)) {", "if (0) {"),
         ("c->x86_cache_max_rmid = cpuid_ebx(0xf);", "c->x86_cache_max_rmid = 31;"),
         ("if (cpu_has(c, X86_FEATURE_CQM_OCCUP_LLC) ||\n"
          "\t    cpu_has(c, X86_FEATURE_CQM_MBM_TOTAL) ||\n"
          "\t    cpu_has(c, X86_FEATURE_CQM_MBM_LOCAL)) {", "if (1) {"),
         (first_definition, CPUID + first_definition))
    read_counter = "\trdmsrl(MSR_IA32_QM_CTR, msr_val);"
    cache_size = "resctrl_rmid_realloc_limit = boot_cpu_data.x86_cache_size * 1024;"
    edit("monitor.c", (read_counter, read_counter + COUNTER), (cache_size, "resctrl_rmid_realloc_limit = 64 << 20;"))


main()
