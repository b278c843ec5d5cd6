/* fibula_bpf.h: looks names of up to 8 bytes up in a table in memory, from a BPF program.
 *
 * The table is the one value of a BPF_MAP_TYPE_ARRAY with BPF_F_MMAPABLE: user space maps it and writes it, from a FIB file
 * by fibula.h (fibula_bpf_fill) or as any writer of docs/formats/table-in-memory.md. Designs: concise, ofw, line, line-fast,
 * line-small; hash family muladd. Reads are masked, so the verifier sees that they stay inside the map.
 *
 *     struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_MMAPABLE); __uint(max_entries, 1);
 *              __type(key, __u32); __type(value, struct fibula_bpf_table); } table SEC(".maps");
 *     ...
 *     __u32 zero = 0;
 *     struct fibula_bpf_table *t = bpf_map_lookup_elem(&table, &zero);
 *     if (!t) return XDP_PASS;
 *     __u32 value = fibula_bpf_lookup(t, name);      the name as the frame has it, zero-padded to a word
 *     if (value == FIBULA_BPF_BUSY) return XDP_PASS; the writer was met four times: let user space decide
 *
 * A program that has its table elsewhere (a BPF arena, a larger map) defines FIBULA_BPF_WORD and calls
 * fibula_bpf_lookup_in: the kernel half of the switch does.
 *
 * Include <linux/bpf.h> and <bpf/bpf_helpers.h> (BPF) or fibula.h (user space) before it.
 * Cost: a digest, and two cells or one bucket. Limits: 32 MiB of table; little-endian machines; kernel 5.5.
 */
#ifndef FIBULA_BPF_H
#define FIBULA_BPF_H

/* Words of the map's table: a power of two. */
#define FIBULA_BPF_WORDS (1u << 22)
#define FIBULA_BPF_BUSY 0xFFFFFFFFu

/* What a lookup needs beside the words: written before the program is attached. */
struct fibula_bpf_form {
	unsigned long long a0, a1, addend;   /* of digests, for names of one length */
	unsigned long long per_word;         /* 2^37 / cells_a_word, rounded up */
	unsigned long long where;            /* for a FIBULA_BPF_WORD of yours: an address, a mask */
	unsigned int is_line, value_bits, cell_bits, cells_a_word, parts;
	unsigned short starts[6];
};

struct fibula_bpf_table {
	struct fibula_bpf_form form;
	unsigned char spare[4096 - sizeof(struct fibula_bpf_form)];
	unsigned long long words[FIBULA_BPF_WORDS];
};

#ifdef __bpf__

/* The word at a place. The mask keeps it inside the map, whatever the table says. */
#ifndef FIBULA_BPF_WORD
#define FIBULA_BPF_WORD(form, words, at) (*(volatile const unsigned long long *)((words) + ((at) & (FIBULA_BPF_WORDS - 1))))
#endif

/* Only a mutant for tests does not look whether it was overtaken. */
#ifndef FIBULA_BPF_CHECKS
#define FIBULA_BPF_CHECKS 1
#endif

typedef const volatile struct fibula_bpf_form fibula_bpf_form;
typedef const unsigned long long fibula_bpf_words;

static __always_inline unsigned long long fibula_bpf_high(unsigned long long a, unsigned long long b)
{
	unsigned long long a0 = (unsigned int)a, a1 = a >> 32, b0 = (unsigned int)b, b1 = b >> 32;
	unsigned long long t = a1 * b0 + (a0 * b0 >> 32), u = a0 * b1 + (unsigned int)t;
	return a1 * b1 + (t >> 32) + (u >> 32);
}

static __always_inline unsigned long long fibula_bpf_digest(fibula_bpf_form *f, unsigned long long name)
{
	unsigned long long x = fibula_bpf_high(f->a0, name) + f->a1 * name + f->addend;
	x ^= x >> 33; x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* The digest mixed with a tweak. */
static __always_inline unsigned long long fibula_bpf_mix(unsigned long long digest, unsigned long long tweak)
{
	unsigned long long x = (digest ^ tweak * 0x9E3779B1ull) * 0x9E3779B97F4A7C15ull;
	return x ^ x >> 32;
}

static __always_inline unsigned int fibula_bpf_stashed(fibula_bpf_form *f, fibula_bpf_words *w,
	unsigned long long at, unsigned long long digest, int *is_there)
{
	unsigned long long n = FIBULA_BPF_WORD(f, w, at);
	for (int i = 0; i < 8; i++)
		if (i < n && FIBULA_BPF_WORD(f, w, at + 1 + 2 * i) == digest) {
			*is_there = 1;
			return (unsigned int)FIBULA_BPF_WORD(f, w, at + 2 + 2 * i);
		}
	return 0;
}

static __always_inline unsigned int fibula_bpf_othello(fibula_bpf_form *f, fibula_bpf_words *w,
	unsigned long long entry, unsigned long long digest)
{
	unsigned long long part = 8 * (entry >> 32), words = entry & 0xFFFF, side = words * f->cells_a_word;
	if (entry >> 31 & 1) {
		int is_there = 0;
		unsigned int value = fibula_bpf_stashed(f, w, part + 2 * words, digest, &is_there);
		if (is_there)
			return value;
	}
	unsigned long long x = fibula_bpf_mix(digest, entry >> 16 & 0x7FFF);
	unsigned long long i = (x >> 32) * side >> 32, j = side + ((x & 0xFFFFFFFF) * side >> 32);
	unsigned long long wi = i * f->per_word >> 37, wj = j * f->per_word >> 37;
	unsigned long long a = FIBULA_BPF_WORD(f, w, part + wi) >> ((i - wi * f->cells_a_word) * f->cell_bits & 63);
	unsigned long long b = FIBULA_BPF_WORD(f, w, part + wj) >> ((j - wj * f->cells_a_word) * f->cell_bits & 63);
	unsigned long long values = ~0ull >> (64 - f->value_bits & 63);
	if (f->cell_bits > f->value_bits) {
		unsigned long long mask = ~0ull >> (65 - f->cell_bits & 63) & ~values;
		unsigned long long mark = (digest ^ digest >> 32) * 0x243F6A8885A308D3ull >> (65 - f->cell_bits & 63) & mask;
		if (!((a & b) >> (f->cell_bits - 1 & 63) & 1) || ((a ^ b) & mask) != mark)
			return 0;
	}
	return (unsigned int)((a ^ b) & values);
}

static __always_inline unsigned int fibula_bpf_line(fibula_bpf_form *f, fibula_bpf_words *w,
	unsigned long long entry, unsigned long long digest)
{
	unsigned long long part = 8 * (entry >> 32), n_words = f->value_bits <= 8 ? 8 : 16;
	unsigned long long n0 = entry & 0xFFFF, n1 = entry >> 16 & 0x3FFF, n2 = entry >> 30 & 1;
	for (int level = 0; level < 3; level++) {
		unsigned long long bucket, rank, n;
		if (level == 0) {
			n = n0; rank = digest & 0xFF; bucket = (digest >> 8 & 0xFFFFFFFF) * n0 >> 32;
		} else if (level == 1) {
			n = n1; rank = digest >> 24 & 0xFF; bucket = n0 + ((digest >> 8 & 0xFFFF) * n1 >> 16);
		} else {
			n = n2; rank = digest >> 16 & 0xFF; bucket = n0 + n1;
		}
		if (!n)
			continue;
		unsigned long long at = part + bucket * n_words, head = FIBULA_BPF_WORD(f, w, at), value = 0;
		if (rank - (rank >> 7) >= (head >> 8 & 0xFF))
			continue;
		unsigned long long x = fibula_bpf_mix(digest, head & 0xFF);
		for (int j = 0; j < 4; j++)
			if (j < f->parts) {
				unsigned long long start = f->starts[j], slot = start + ((x >> 16 * j & 0xFFFF) * (f->starts[j + 1] - start) >> 16);
				unsigned long long word = slot * f->per_word >> 37;
				value ^= FIBULA_BPF_WORD(f, w, at + word) >> ((slot - word * f->cells_a_word) * f->value_bits & 63);
			}
		return (unsigned int)(value & (~0ull >> (64 - f->value_bits & 63)));
	}
	int is_there = 0;
	return entry >> 31 & 1 ? fibula_bpf_stashed(f, w, part + (n0 + n1 + n2) * n_words, digest, &is_there) : 0;
}

/* The value of a digest, or FIBULA_BPF_BUSY if the writer was met four times. */
static __always_inline unsigned int fibula_bpf_lookup_in(fibula_bpf_form *f, fibula_bpf_words *w,
	unsigned long long digest)
{
	for (int i = 0; i < 4; i++) {
		unsigned long long reuse = FIBULA_BPF_WORD(f, w, 21), count = FIBULA_BPF_WORD(f, w, 16), directory = FIBULA_BPF_WORD(f, w, 8);
		unsigned long long prefix = digest >> 1 >> (63 - (directory >> 32) & 63);
		unsigned long long entry = FIBULA_BPF_WORD(f, w, 8 * (directory & 0xFFFFFFFF) + prefix);
		unsigned int value = f->is_line ? fibula_bpf_line(f, w, entry, digest) : fibula_bpf_othello(f, w, entry, digest);
		/* x86 keeps loads in order; elsewhere the kernel's JIT may not, and the compiler keeps them: they are volatile. */
		int overtaken = (count & 1) || FIBULA_BPF_WORD(f, w, 16) != count || FIBULA_BPF_WORD(f, w, 21) != reuse;
		if (!overtaken || !FIBULA_BPF_CHECKS)
			return value;
	}
	return FIBULA_BPF_BUSY;
}

static __always_inline unsigned int fibula_bpf_lookup_digest(const struct fibula_bpf_table *t, unsigned long long digest)
{
	return fibula_bpf_lookup_in(&t->form, t->words, digest);
}

/* The value of a name of the length that the form was made for. */
static __always_inline unsigned int fibula_bpf_lookup(const struct fibula_bpf_table *t, unsigned long long name)
{
	return fibula_bpf_lookup_digest(t, fibula_bpf_digest(&t->form, name));
}

#else

/* Writes a table that fibula.h has, for names of `len` bytes, into the mapping of the map. 0, or why not. */
static inline const char *fibula_bpf_fill(struct fibula_bpf_table *to, const struct fibula_fib *fib, size_t len)
{
	if (fib->n_words > FIBULA_BPF_WORDS)
		return "the table is larger than the map: raise FIBULA_BPF_WORDS in both programs";
	if (fib->family != 1 || len == 0 || len > 8)
		return "the table has another hash than muladd, or names of more than 8 bytes: build it with --hash muladd";
	to->form.a0 = fib->hash.a[0];
	to->form.a1 = fib->hash.a[1];
	to->form.addend = fib->hash.addend[len];
	to->form.per_word = fib->per_word;
	to->form.is_line = fib->design == FIBULA_LINE;
	to->form.value_bits = fib->value_bits;
	to->form.cell_bits = fib->cell_bits;
	to->form.cells_a_word = fib->cells_a_word;
	to->form.parts = fib->parts_of_name;
	for (int j = 0; j < 5; j++)
		to->form.starts[j] = fib->starts[j];
	memcpy(to->words, fib->words, 8 * fib->n_words);
	return NULL;
}

#endif
#endif
