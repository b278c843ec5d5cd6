/* fibula.h: looks names up in FIB files and in the tables of running switches, from C11 and C++17, with nothing but libc.
 *
 *     char why[FIBULA_WHY];
 *     struct fibula_fib *fib = fibula_open("names.fib", why);
 *     if (!fib) { fprintf(stderr, "%s\n", why); exit(1); }
 *     struct fibula_action action = fibula_action(fib, fibula_lookup(fib, mac, 6));
 *
 * `fibula fib build` writes files; a switch with `share = "/run/fibula/s1.table"` shows its table there, and fibula_open
 * opens that, too. Designs: concise, ofw,
 * line, line-fast, line-small. Names are their bytes as frames carry them, up to 64. A lookup neither allocates nor fails;
 * any number of threads may look up in one table. A name that was not in the list gets what its design gives aliens:
 * concise and line any action, ofw mostly drop.
 *
 * A table of a switch changes while it is read. Each lookup and each burst sees one state of it; if the switch changes what
 * is read meanwhile, it is read again. No reader keeps the switch waiting, however long it sleeps, and a switch that dies
 * leaves its last table. A switch that makes another table puts it in the place of the one before: see fibula_refresh.
 *
 * Cost: a digest, and two cells (concise, ofw) or one bucket (line). fibula_lookup_burst fetches those of up to 32 names
 * at once: take it for tables that do not fit the cache.
 * Formats: docs/formats/fib-file.md, table-in-memory.md, othello.md, line.md; digests: vectors/README.md. Everything that
 * lookups rely on is checked when a file is read or a table attached; one that is cut, changed or made up is refused with a
 * reason.
 * Limits: 64-bit integers, little-endian machines, gcc or clang; tables of switches: Linux. It is long because it is one file,
 * to be copied.
 */
#ifndef FIBULA_H
#define FIBULA_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Define FIBULA_SCALAR to leave AVX2 out. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(FIBULA_SCALAR)
#define FIBULA_HAS_AVX2_ 1
#include <immintrin.h>
#endif
#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "fibula.h reads words as little-endian machines do"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a reason, its end included. */
#define FIBULA_WHY 160
/* Most names of a burst. */
#define FIBULA_BURST 32
/* Bytes of the longest name. */
#define FIBULA_MAX_NAME 64

/* What a name leads to. */
enum fibula_verb { FIBULA_DROP = 0, FIBULA_PORT = 1, FIBULA_LOCAL = 2, FIBULA_TUNNEL = 3, FIBULA_PUNT = 4 };
struct fibula_action {
	enum fibula_verb verb;
	uint16_t port;           /* of FIBULA_PORT */
	uint32_t node;           /* of FIBULA_TUNNEL */
	uint8_t address_bytes;   /* of FIBULA_TUNNEL: 0, 4 or 16 */
	uint8_t address[16];
};

/* ---- inside ---- */

#define FIBULA_STEP 0x9E3779B97F4A7C15ull

enum fibula_design { FIBULA_LINE = 1, FIBULA_OTHELLO = 2 };

struct fibula_hash {
	uint64_t a[2], c[2], addend[17]; /* muladd */
	uint64_t s[4];                   /* wy, and longer names of muladd */
	uint64_t k[2];                   /* siphash13 */
	uint64_t crc[8], last;           /* crc32c */
};

/* Words of the root of a table in memory, and their places: docs/formats/table-in-memory.md. */
enum fibula_root_ {
	FIBULA_MAGIC_ = 0, FIBULA_BYTES_ = 1, FIBULA_FORM_ = 2, FIBULA_NAMES_ = 3, FIBULA_DIRECTORY_ = 8, FIBULA_ANNEX_ = 9,
	FIBULA_WRITER_ = 10, FIBULA_COUNT_ = 16, FIBULA_REUSE_ = 21, FIBULA_UNDO_ = 32, FIBULA_ROOT_WORDS_ = 512
};
/* Words of a stash: a count, then digest and value of up to 8 names. */
#define FIBULA_STASH_ 17

struct fibula_fib {
	enum fibula_design design;
	uint8_t family, kind, name_bytes;
	uint8_t value_bits, fingerprint_bits, cell_bits;
	uint8_t parts_of_name;   /* line: cells a name */
	uint8_t has_avx2;        /* whether this processor has AVX2, BMI and BMI2 */
	uint8_t fetches;         /* whether bursts fetch what they read before they read it */
	uint8_t is_lent;         /* whether others own the memory of the table and free it */
	uint16_t starts[5];      /* line: the first slot of each part of a bucket, and the end of the last */
	uint32_t cells_a_word;
	uint64_t per_word;       /* 2^37 / cells_a_word, rounded up: divides numbers below 2^31 */
	uint64_t n_names;        /* of a file; 0 of the table of a switch, where it changes */
	struct fibula_hash hash;
	const uint64_t *words;   /* of the table in memory, root first */
	uint64_t n_words;
	uint64_t device, inode;  /* of the file that a table is mapped from, 0 if it is in memory of this program */
};

static inline uint64_t fibula_rotate_(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline uint64_t fibula_mix_(uint64_t x)
{
	x ^= x >> 33; x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* The high half of a product. */
static inline uint64_t fibula_high_(uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)((wide)a * b >> 64);
#else
	uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
	uint64_t t = a1 * b0 + (a0 * b0 >> 32), u = a0 * b1 + (uint32_t)t;
	return a1 * b1 + (t >> 32) + (u >> 32);
#endif
}

static inline uint64_t fibula_fold_(uint64_t a, uint64_t b) { return a ^ b ^ a * b ^ fibula_high_(a, b); }

/* Up to 8 bytes as a word, zero-padded. */
static inline uint64_t fibula_word_(const uint8_t *bytes, size_t n)
{
	uint64_t word;
	uint32_t low, high;
	if (n >= 8) {
		memcpy(&word, bytes, 8);
		return word;
	}
	if (n >= 4) {
		/* They overlap, and agree there. */
		memcpy(&low, bytes, 4);
		memcpy(&high, bytes + n - 4, 4);
		return low | (uint64_t)high << 8 * (n - 4);
	}
	if (n == 0)
		return 0;
	return bytes[0] | (uint64_t)bytes[n / 2] << 8 * (n / 2) | (uint64_t)bytes[n - 1] << 8 * (n - 1);
}

static inline void fibula_sip_round_(uint64_t v[4])
{
	v[0] += v[1]; v[1] = fibula_rotate_(v[1], 13) ^ v[0]; v[0] = fibula_rotate_(v[0], 32);
	v[2] += v[3]; v[3] = fibula_rotate_(v[3], 16) ^ v[2];
	v[0] += v[3]; v[3] = fibula_rotate_(v[3], 21) ^ v[0];
	v[2] += v[1]; v[1] = fibula_rotate_(v[1], 17) ^ v[2]; v[2] = fibula_rotate_(v[2], 32);
}

static inline uint64_t fibula_sip13_(uint64_t k0, uint64_t k1, const uint8_t *bytes, size_t len)
{
	uint64_t v[4] = {k0 ^ 0x736F6D6570736575ull, k1 ^ 0x646F72616E646F6Dull, k0 ^ 0x6C7967656E657261ull,
		k1 ^ 0x7465646279746573ull};
	size_t left = len;
	for (;;) {
		uint64_t word = fibula_word_(bytes, left);
		if (left < 8)
			word |= (uint64_t)len << 56;
		v[3] ^= word; fibula_sip_round_(v); v[0] ^= word;
		if (left < 8)
			break;
		bytes += 8; left -= 8;
	}
	v[2] ^= 0xFF;
	for (int i = 0; i < 3; i++)
		fibula_sip_round_(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* A word derived from the 32 bytes of a secret key. */
static inline uint64_t fibula_derive_(const uint8_t *key, uint8_t purpose, uint64_t index)
{
	uint8_t bytes[25];
	memcpy(bytes, key + 16, 16);
	bytes[16] = purpose;
	memcpy(bytes + 17, &index, 8);
	return fibula_sip13_(fibula_word_(key, 8), fibula_word_(key + 8, 8), bytes, 25);
}

static inline uint64_t fibula_wy_(const uint64_t s[4], const uint8_t *name, size_t len)
{
	uint64_t state = s[0] ^ (uint64_t)len * FIBULA_STEP;
	for (; len > 16; name += 16, len -= 16)
		state = fibula_fold_(fibula_word_(name, 8) ^ s[1], fibula_word_(name + 8, 8) ^ state);
	uint64_t w0 = fibula_word_(name, len), w1 = len > 8 ? fibula_word_(name + 8, len - 8) : 0;
	uint64_t low = (w0 ^ s[2]) * (w1 ^ state), high = fibula_high_(w0 ^ s[2], w1 ^ state);
	return fibula_mix_(fibula_fold_(low ^ w0 ^ s[3], high ^ w1 ^ state));
}

static inline uint32_t fibula_crc32c_(uint32_t crc, uint64_t word)
{
	crc = ~crc;
	for (int byte = 0; byte < 8; byte++, word >>= 8) {
		crc ^= (uint8_t)word;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

static inline uint64_t fibula_crc_(const struct fibula_hash *h, const uint8_t *name, size_t len)
{
	uint64_t halves[2];
	for (int half = 0; half < 2; half++) {
		const uint64_t *w = h->crc + 4 * half;
		uint32_t crc = (uint32_t)w[0];
		for (size_t i = 0; 8 * i < len; i++) {
			uint64_t word = fibula_word_(name + 8 * i, len - 8 * i) ^ w[1];
			uint64_t factor = (w[2] | 1) + 2 * (uint64_t)i * w[3];
			crc = fibula_crc32c_(crc, word * factor ^ fibula_high_(word, factor));
		}
		halves[half] = crc;
	}
	return fibula_mix_((halves[1] << 32 | halves[0]) * (h->last | 1) + (uint64_t)len * FIBULA_STEP);
}

/* ---- lookups ---- */

/* The digest of a name of 1 to 64 bytes. */
static inline uint64_t fibula_digest(const struct fibula_fib *fib, const void *name, size_t len)
{
	const struct fibula_hash *h = &fib->hash;
	const uint8_t *bytes = (const uint8_t *)name;
	if (fib->family == 1 && len <= 16) {
		uint64_t w0 = fibula_word_(bytes, len), w1 = len > 8 ? fibula_word_(bytes + 8, len - 8) : 0;
		uint64_t low = h->a[0] * w0, more = h->c[0] * w1;
		uint64_t high = fibula_high_(h->a[0], w0) + h->a[1] * w0 + fibula_high_(h->c[0], w1) + h->c[1] * w1;
		return fibula_mix_(high + (low + more < low) + h->addend[len]);
	}
	if (fib->family <= 2)
		return fibula_wy_(h->s, bytes, len);
	if (fib->family == 3)
		return fibula_sip13_(h->k[0], h->k[1], bytes, len);
	return fibula_crc_(h, bytes, len);
}

/* Words that a writer may change meanwhile. */
static inline uint64_t fibula_load_(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static inline uint64_t fibula_acquire_(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* What a lookup follows: the state of the writer's counters when it began, and the directory then. */
struct fibula_view_ {
	uint64_t reuse, count;
	const uint64_t *directory;
	uint8_t depth;
};

static inline struct fibula_view_ fibula_begin_(const struct fibula_fib *fib)
{
	struct fibula_view_ view;
	view.reuse = fibula_acquire_(fib->words + FIBULA_REUSE_);
	view.count = fibula_acquire_(fib->words + FIBULA_COUNT_);
	uint64_t word = fibula_acquire_(fib->words + FIBULA_DIRECTORY_);
	uint64_t first = 8 * (word & 0xFFFFFFFF), depth = word >> 32;
	/* A read behind the table reads a directory of one entry instead, which leads nowhere. */
	int is_inside = depth <= 24 && first + (1ull << (depth & 31)) <= fib->n_words;
	view.directory = fib->words + (is_inside ? first : 0);
	view.depth = is_inside ? (uint8_t)depth : 0;
	return view;
}

/* Whether everything read since the beginning is of one state. */
static inline int fibula_is_whole_(const struct fibula_fib *fib, const struct fibula_view_ *view)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return fibula_load_(fib->words + FIBULA_COUNT_) == view->count && fibula_load_(fib->words + FIBULA_REUSE_) == view->reuse;
}

/* A shard of an Othello, or a group of a line table. */
struct fibula_part_ {
	uint64_t words;          /* where its words begin */
	uint64_t tweak;          /* of a shard, spread over 64 bits */
	uint32_t n[3];           /* cells of a side; or buckets of the three levels */
	uint32_t n_words;        /* in all; a stash may follow */
	int has_stash;
};

/* Words of a bucket of a line table. */
static inline uint32_t fibula_bucket_words_(const struct fibula_fib *fib) { return fib->value_bits <= 8 ? 8 : 16; }

/* The part of an entry of the directory. One that would be behind the table is nowhere: its words are the root's. */
static inline struct fibula_part_ fibula_part_(const struct fibula_fib *fib, uint64_t entry)
{
	struct fibula_part_ part;
	part.words = 8 * (entry >> 32);
	part.has_stash = entry >> 31 & 1;
	if (fib->design == FIBULA_LINE) {
		part.n[0] = entry & 0xFFFF;
		part.n[1] = entry >> 16 & 0x3FFF;
		part.n[2] = entry >> 30 & 1;
		part.tweak = 0;
		part.n_words = (part.n[0] + part.n[1] + part.n[2]) * fibula_bucket_words_(fib);
	} else {
		part.n_words = 2 * (entry & 0xFFFF);
		part.n[0] = (uint32_t)(entry & 0xFFFF) * fib->cells_a_word;
		part.n[1] = part.n[2] = 0;
		part.tweak = (entry >> 16 & 0x7FFF) * 0x9E3779B1ull;
	}
	if (part.words + part.n_words + FIBULA_STASH_ > fib->n_words) {
		part.words = part.n_words = part.n[0] = part.n[1] = part.n[2] = 0;
		part.has_stash = 0;
	}
	return part;
}

static inline uint64_t fibula_entry_(const struct fibula_view_ *view, uint64_t digest)
{
	/* Two shifts, because a shift by 64 is not defined. */
	return fibula_acquire_(view->directory + (digest >> 1 >> (63 - view->depth)));
}

/* A word of a part; `undo`: before the write that is under way. -1 in `failed` if that changes too many words. */
static inline uint64_t fibula_read_(const struct fibula_fib *fib, uint64_t at, int undo, int *failed)
{
	uint64_t word = fibula_load_(fib->words + at);
	if (undo) {
		const uint64_t *note = fib->words + FIBULA_UNDO_;
		uint64_t n = fibula_load_(note);
		if (n > (FIBULA_ROOT_WORDS_ - FIBULA_UNDO_ - 1) / 2) {
			*failed = 1;
			return 0;
		}
		for (uint64_t i = 0; i < n; i++)
			if (fibula_load_(note + 1 + 2 * i) == at)
				return fibula_load_(note + 2 + 2 * i);
	}
	return word;
}

/* The value of a digest in the stash of a part: 0 if it is not there. A stash is not written in place. */
static inline uint64_t fibula_stashed_(const struct fibula_fib *fib, const struct fibula_part_ *part, uint64_t digest,
	int *is_there)
{
	const uint64_t *stash = fib->words + part->words + part->n_words;
	uint64_t n = part->has_stash ? fibula_load_(stash) : 0;
	for (uint64_t i = 0; i < n && i < (FIBULA_STASH_ - 1) / 2; i++)
		if (fibula_load_(stash + 1 + 2 * i) == digest) {
			*is_there = 1;
			return fibula_load_(stash + 2 + 2 * i);
		}
	return 0;
}

/* Where a cell is: its word, and its first bit there. */
struct fibula_spot_ {
	uint64_t word, bit;
};

static inline struct fibula_spot_ fibula_spot_(const struct fibula_fib *fib, const struct fibula_part_ *part, uint64_t cell)
{
	uint64_t word = cell * fib->per_word >> 37;
	struct fibula_spot_ spot = {part->words + word, (cell - word * fib->cells_a_word) * fib->cell_bits};
	return spot;
}

/* The two cells of a digest. */
struct fibula_spots_ {
	struct fibula_spot_ a, b;
};

static inline struct fibula_spots_ fibula_spots_(const struct fibula_fib *fib, const struct fibula_part_ *part,
	uint64_t digest)
{
	uint64_t x = (digest ^ part->tweak) * FIBULA_STEP;
	x ^= x >> 32;
	struct fibula_spots_ spots = {fibula_spot_(fib, part, (x >> 32) * part->n[0] >> 32),
		fibula_spot_(fib, part, part->n[0] + ((x & 0xFFFFFFFF) * part->n[0] >> 32))};
	return spots;
}

/* The value of a digest by its two words, unless the stash of its part has it. */
static inline uint64_t fibula_othello_(const struct fibula_fib *fib, uint64_t digest, uint64_t a, uint64_t b)
{
	uint64_t value = (a ^ b) & (~0ull >> (64 - fib->value_bits));
	if (fib->fingerprint_bits) {
		/* The fingerprint is above the value, and above that the indicator. */
		uint64_t mask = ~0ull >> (65 - fib->cell_bits) & ~(~0ull >> (64 - fib->value_bits));
		uint64_t f = (digest ^ digest >> 32) * 0x243F6A8885A308D3ull >> (65 - fib->cell_bits) & mask;
		int is_used = (int)((a & b) >> (fib->cell_bits - 1) & 1);
		return is_used && ((a ^ b) & mask) == f ? value : 0;
	}
	return value;
}

static inline uint64_t fibula_line_(const struct fibula_fib *fib, const struct fibula_part_ *part, uint64_t digest, int undo,
	int *failed)
{
	const uint64_t buckets[3] = {(digest >> 8 & 0xFFFFFFFF) * part->n[0] >> 32,
		part->n[0] + ((digest >> 8 & 0xFFFF) * part->n[1] >> 16), (uint64_t)part->n[0] + part->n[1]};
	const uint8_t ranks[3] = {(uint8_t)digest, (uint8_t)(digest >> 24), (uint8_t)(digest >> 16)};
	uint32_t n_words = fibula_bucket_words_(fib);
	int is_there = 0;
	for (int level = 0; level < 3; level++) {
		if (!part->n[level])
			continue;
		uint64_t at = part->words + buckets[level] * n_words, head = fibula_read_(fib, at, undo, failed);
		if ((uint64_t)(ranks[level] - (ranks[level] >> 7)) >= (head >> 8 & 0xFF))
			continue;
		uint64_t x = (digest ^ (head & 0xFF) * 0x9E3779B1ull) * FIBULA_STEP, value = 0;
		x ^= x >> 32;
		for (uint32_t j = 0; j < fib->parts_of_name; j++) {
			uint64_t start = fib->starts[j], slot = start + ((x >> 16 * j & 0xFFFF) * (fib->starts[j + 1] - start) >> 16);
			uint64_t word = slot * fib->per_word >> 37, in_word = slot - word * fib->cells_a_word;
			value ^= fibula_read_(fib, at + word, undo, failed) >> in_word * fib->value_bits;
		}
		return value & (~0ull >> (64 - fib->value_bits));
	}
	return fibula_stashed_(fib, part, digest, &is_there);
}

/* The value of a digest whose part has this entry; `undo`: before the write that is under way. */
static inline uint64_t fibula_value_of_(const struct fibula_fib *fib, uint64_t entry, uint64_t digest, int undo, int *failed)
{
	struct fibula_part_ part = fibula_part_(fib, entry);
	if (fib->design == FIBULA_LINE)
		return fibula_line_(fib, &part, digest, undo, failed);
	int is_stashed = 0;
	uint64_t stashed = fibula_stashed_(fib, &part, digest, &is_stashed);
	if (is_stashed)
		return stashed;
	struct fibula_spots_ spots = fibula_spots_(fib, &part, digest);
	uint64_t a = fibula_read_(fib, spots.a.word, undo, failed), b = fibula_read_(fib, spots.b.word, undo, failed);
	return fibula_othello_(fib, digest, a >> spots.a.bit, b >> spots.b.bit);
}

/* The same, in the state of a view. */
static inline uint64_t fibula_value_(const struct fibula_fib *fib, const struct fibula_view_ *view, uint64_t digest, int undo,
	int *failed)
{
	return fibula_value_of_(fib, fibula_entry_(view, digest), digest, undo, failed);
}

/* Times that a name is read again before it is dropped. Only a table whose writer died in the middle of a change that is
 * too large to be undone comes to that. */
#define FIBULA_TRIES_ 100000

/* One name, however often the writer interferes. */
#ifdef __GNUC__
__attribute__((noinline, cold, unused))
#endif
static uint16_t fibula_lookup_slowly_(const struct fibula_fib *fib, uint64_t digest)
{
	for (int i = 0; i < FIBULA_TRIES_; i++) {
		struct fibula_view_ view = fibula_begin_(fib);
		int failed = 0;
		uint64_t value = view.count & 1 ? fibula_value_(fib, &view, digest, 1, &failed)
						: fibula_value_(fib, &view, digest, 0, &failed);
		if (!failed && fibula_is_whole_(fib, &view))
			return (uint16_t)value;
	}
	return 0;
}

/* The value of a digest: a number for fibula_action. */
static inline uint16_t fibula_lookup_digest(const struct fibula_fib *fib, uint64_t digest)
{
	struct fibula_view_ view = fibula_begin_(fib);
	int failed = 0;
	uint64_t value = fibula_value_(fib, &view, digest, 0, &failed);
	return view.count & 1 || !fibula_is_whole_(fib, &view) ? fibula_lookup_slowly_(fib, digest) : (uint16_t)value;
}

/* The value of a name of 1 to 64 bytes. */
static inline uint16_t fibula_lookup(const struct fibula_fib *fib, const void *name, size_t len)
{
	return fibula_lookup_digest(fib, fibula_digest(fib, name, len));
}

static inline void fibula_fetch_(const void *line)
{
#ifdef __GNUC__
	__builtin_prefetch(line);
#else
	(void)line;
#endif
}

#ifdef __GNUC__
#define FIBULA_LOOP_ static inline __attribute__((always_inline))
#else
#define FIBULA_LOOP_ static inline
#endif

/* The digests of names of up to 8 bytes by muladd. */
FIBULA_LOOP_ void fibula_short_digests_(const struct fibula_fib *fib, const uint8_t *names, size_t len, size_t stride, size_t n,
	uint64_t *digests)
{
	const uint64_t low = fib->hash.a[0], high = fib->hash.a[1], addend = fib->hash.addend[len];
	for (size_t i = 0; i < n; i++)
		digests[i] = fibula_word_(names + i * stride, len);
	for (size_t i = 0; i < n; i++)
		digests[i] = fibula_mix_(fibula_high_(low, digests[i]) + high * digests[i] + addend);
}

/* The values of a burst of an Othello whose cells are bytes (log_bytes 0) or pairs of bytes (1), without fingerprints. 0 if
 * a part has a stash or ends behind the table: then look each up alone. */
FIBULA_LOOP_ int fibula_burst_cells_(const struct fibula_fib *fib, const struct fibula_view_ *view, const uint64_t *digests,
	size_t n, uint16_t *values, unsigned log_bytes)
{
	const uint8_t *base = (const uint8_t *)fib->words;
	uint64_t entries[FIBULA_BURST], first[FIBULA_BURST], second[FIBULA_BURST], any = 0, behind = 0;
	const uint64_t end = 8 * (fib->n_words - FIBULA_STASH_);
	for (size_t i = 0; i < n; i++)
		entries[i] = fibula_entry_(view, digests[i]);
	for (size_t i = 0; i < n; i++) {
		uint64_t entry = entries[i], side = (entry & 0xFFFF) << (3 - log_bytes), at = (entry >> 32) * 64;
		uint64_t x = (digests[i] ^ (entry >> 16 & 0x7FFF) * 0x9E3779B1ull) * FIBULA_STEP;
		x ^= x >> 32;
		first[i] = at + ((x >> 32) * side >> 32 << log_bytes);
		second[i] = at + ((side + ((x & 0xFFFFFFFF) * side >> 32)) << log_bytes);
		any |= entry;
		behind |= end - (at + (entry & 0xFFFF) * 16);
	}
	if (any >> 31 & 1 || behind >> 63)
		return 0;
	/* The lines of one name come while those of the others are found. */
	for (size_t i = 0; fib->fetches && i < n; i++) {
		fibula_fetch_(base + first[i]);
		fibula_fetch_(base + second[i]);
	}
	for (size_t i = 0; i < n; i++)
		values[i] = log_bytes ? __atomic_load_n((const uint16_t *)(base + first[i]), __ATOMIC_RELAXED) ^
				__atomic_load_n((const uint16_t *)(base + second[i]), __ATOMIC_RELAXED)
			: (uint16_t)(__atomic_load_n(base + first[i], __ATOMIC_RELAXED) ^
				__atomic_load_n(base + second[i], __ATOMIC_RELAXED));
	if (log_bytes ? fib->value_bits < 16 : fib->value_bits < 8)
		for (size_t i = 0; i < n; i++)
			values[i] &= (uint16_t)((1u << fib->value_bits) - 1);
	return 1;
}

/* The first slot of part j of a bucket of a line table of 8-bit values. */
#define FIBULA_START_(j, parts) (2 + 62 * (j) / (parts))

/* The values of a burst of a line table of 8-bit values, with 3 or 4 cells a name. 0 as above. */
FIBULA_LOOP_ int fibula_burst_buckets_(const struct fibula_fib *fib, const struct fibula_view_ *view, const uint64_t *digests,
	size_t n, uint16_t *values, unsigned parts)
{
	const uint8_t *base = (const uint8_t *)fib->words;
	uint64_t entries[FIBULA_BURST], lines[FIBULA_BURST], heads[FIBULA_BURST], x[FIBULA_BURST], behind = 0;
	const uint64_t end = 8 * (fib->n_words - FIBULA_STASH_);
	uint32_t bumped = 0;
	for (size_t i = 0; i < n; i++)
		entries[i] = fibula_entry_(view, digests[i]);
	for (size_t i = 0; i < n; i++) {
		uint64_t entry = entries[i], at = (entry >> 32) * 64;
		lines[i] = at + ((digests[i] >> 8 & 0xFFFFFFFF) * (entry & 0xFFFF) >> 32) * 64;
		behind |= end - (at + ((entry & 0xFFFF) + (entry >> 16 & 0x3FFF) + (entry >> 30 & 1)) * 64);
	}
	if (behind >> 63)
		return 0;
	for (size_t i = 0; fib->fetches && i < n; i++)
		fibula_fetch_(base + lines[i]);
	for (size_t i = 0; i < n; i++)
		heads[i] = fibula_load_((const uint64_t *)(base + lines[i]));
	for (size_t i = 0; i < n; i++) {
		uint64_t mixed = (digests[i] ^ (heads[i] & 0xFF) * 0x9E3779B1ull) * FIBULA_STEP;
		x[i] = mixed ^ mixed >> 32;
	}
	for (size_t i = 0; i < n; i++) {
		const uint8_t *line = base + lines[i];
		uint8_t value = 0;
		for (unsigned j = 0; j < parts; j++) {
			uint64_t start = FIBULA_START_(j, parts), length = FIBULA_START_(j + 1, parts) - start;
			value ^= __atomic_load_n(line + start + ((x[i] >> 16 * j & 0xFFFF) * length >> 16), __ATOMIC_RELAXED);
		}
		values[i] = value;
	}
	/* One name in fifty is in another bucket. */
	for (size_t i = 0; i < n; i++) {
		uint64_t rank = digests[i] & 0xFF;
		bumped |= (uint32_t)(rank - (rank >> 7) >= (heads[i] >> 8 & 0xFF)) << i;
	}
	for (; bumped; bumped &= bumped - 1) {
		size_t i = (size_t)__builtin_ctz(bumped);
		struct fibula_part_ part = fibula_part_(fib, entries[i]);
		int failed = 0;
		values[i] = (uint16_t)fibula_line_(fib, &part, digests[i], 0, &failed);
	}
	return 1;
}

/* A burst by the loop that suits its table: 0 if there is none. */
FIBULA_LOOP_ int fibula_burst_fast_(const struct fibula_fib *fib, const struct fibula_view_ *view, const uint64_t *digests,
	size_t n, uint16_t *values)
{
	if (fib->design == FIBULA_LINE) {
		if (fib->value_bits != 8)
			return 0;
		return fib->parts_of_name == 3 ? fibula_burst_buckets_(fib, view, digests, n, values, 3)
			: fibula_burst_buckets_(fib, view, digests, n, values, 4);
	}
	if (fib->fingerprint_bits || (fib->cell_bits != 8 && fib->cell_bits != 16))
		return 0;
	return fib->cell_bits == 8 ? fibula_burst_cells_(fib, view, digests, n, values, 0)
		: fibula_burst_cells_(fib, view, digests, n, values, 1);
}

#ifdef FIBULA_HAS_AVX2_
/* The same with AVX2, four names at a time: behind the last name there are digests up to a multiple of four.
 *
 * Words that lie apart are loaded straight into vectors: a vector that is read from words which were just stored one by one
 * waits for the stores. */
#define FIBULA_TARGET_ __attribute__((target("avx2,bmi,bmi2")))
#define FIBULA_VECTOR_ FIBULA_TARGET_ static inline __attribute__((always_inline))

FIBULA_VECTOR_ __m256i fibula_four_(const void *a, const void *b, const void *c, const void *d)
{
	uint64_t second, fourth;
	memcpy(&second, b, 8);
	memcpy(&fourth, d, 8);
	__m128i low = _mm_insert_epi64(_mm_loadl_epi64((const __m128i *)a), (long long)second, 1);
	__m128i high = _mm_insert_epi64(_mm_loadl_epi64((const __m128i *)c), (long long)fourth, 1);
	__m256i words = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
	/* It stays what was loaded: a writer may change the words, so the compiler must not load them again. */
	__asm__("" : "+x"(words));
	return words;
}

FIBULA_VECTOR_ __m256i fibula_all4_(uint64_t x) { return _mm256_set1_epi64x((long long)x); }

/* The upper halves, where a multiplication reads them. */
FIBULA_VECTOR_ __m256i fibula_upper4_(__m256i x) { return _mm256_shuffle_epi32(x, 0xF5); }

/* Products with a constant, of which the low halves. There are multiplications of 32 bits only. */
FIBULA_VECTOR_ __m256i fibula_times4_(__m256i x, uint64_t k)
{
	__m256i k0 = fibula_all4_(k & 0xFFFFFFFF), k1 = fibula_all4_(k >> 32);
	__m256i cross = _mm256_add_epi64(_mm256_mul_epu32(k1, x), _mm256_mul_epu32(k0, fibula_upper4_(x)));
	return _mm256_add_epi64(_mm256_mul_epu32(k0, x), _mm256_slli_epi64(cross, 32));
}

FIBULA_VECTOR_ __m256i fibula_fold4_(__m256i x) { return _mm256_xor_si256(x, _mm256_srli_epi64(x, 33)); }

/* The digests of names of up to 8 bytes by muladd. */
FIBULA_TARGET_ __attribute__((noinline, unused)) static void fibula_short_digests_avx2_(const struct fibula_fib *fib,
	const uint8_t *names, size_t len, size_t stride, size_t n, uint64_t digests[FIBULA_BURST])
{
	const uint64_t low = fib->hash.a[0], high = fib->hash.a[1];
	const __m256i a0 = fibula_all4_(low & 0xFFFFFFFF), a1 = fibula_all4_(low >> 32), a2 = fibula_all4_(high & 0xFFFFFFFF),
		a3 = fibula_all4_(high >> 32), addend = fibula_all4_(fib->hash.addend[len]), zero = _mm256_setzero_si256(),
		mask = fibula_all4_(len ? ~0ull >> (64 - 8 * len) : 0);
	/* Of the bytes behind this, some are not ours. */
	const uint8_t *end = names + (n ? (n - 1) * stride + len : 0);
	for (size_t i = 0; i < n; i += 4) {
		const uint8_t *at = names + i * stride;
		__m256i x0;
		if (i + 4 <= n && (size_t)(end - at) >= 3 * stride + 8) {
			x0 = stride == 8 ? _mm256_loadu_si256((const __m256i *)at)
				: fibula_four_(at, at + stride, at + 2 * stride, at + 3 * stride);
		} else {
			uint64_t words[4] = {0, 0, 0, 0};
			for (size_t j = 0; j < 4 && i + j < n; j++)
				words[j] = fibula_word_(at + j * stride, len);
			x0 = _mm256_set_epi64x((long long)words[3], (long long)words[2], (long long)words[1], (long long)words[0]);
		}
		x0 = _mm256_and_si256(x0, mask);
		__m256i x1 = fibula_upper4_(x0);
		__m256i t = _mm256_add_epi64(_mm256_mul_epu32(a1, x0), _mm256_srli_epi64(_mm256_mul_epu32(a0, x0), 32));
		__m256i u = _mm256_add_epi64(_mm256_mul_epu32(a0, x1), _mm256_blend_epi32(t, zero, 0xAA));
		__m256i shifted = _mm256_add_epi64(_mm256_mul_epu32(a3, x0), _mm256_mul_epu32(a2, x1));
		__m256i products = _mm256_add_epi64(_mm256_mul_epu32(a2, x0), _mm256_mul_epu32(a1, x1));
		__m256i carries = _mm256_add_epi64(_mm256_srli_epi64(t, 32), _mm256_srli_epi64(u, 32));
		__m256i x = _mm256_add_epi64(_mm256_add_epi64(products, carries), _mm256_slli_epi64(shifted, 32));
		x = fibula_times4_(fibula_fold4_(_mm256_add_epi64(x, addend)), 0xff51afd7ed558ccdull);
		x = fibula_times4_(fibula_fold4_(x), 0xc4ceb9fe1a85ec53ull);
		_mm256_storeu_si256((__m256i *)(digests + i), fibula_fold4_(x));
	}
}

/* The entries of four digests. */
FIBULA_VECTOR_ __m256i fibula_entries4_(const struct fibula_view_ *view, const uint64_t *digests)
{
	const uint64_t *at = view->directory;
	const int shift = 63 - view->depth;
	return fibula_four_(at + (digests[0] >> 1 >> shift), at + (digests[1] >> 1 >> shift), at + (digests[2] >> 1 >> shift),
		at + (digests[3] >> 1 >> shift));
}

/* Digests mixed with the tweaks of their places. */
FIBULA_VECTOR_ __m256i fibula_tweaked4_(const uint64_t *digests, __m256i tweaks)
{
	__m256i digest = _mm256_loadu_si256((const __m256i *)digests);
	__m256i x = fibula_times4_(_mm256_xor_si256(digest, _mm256_mul_epu32(tweaks, fibula_all4_(0x9E3779B1))), FIBULA_STEP);
	return _mm256_xor_si256(x, _mm256_srli_epi64(x, 32));
}

/* Width of cells for the loops below, as log2 of their bytes. */
enum { FIBULA_BYTES_WIDE_ = 0, FIBULA_PAIRS_WIDE_ = 1, FIBULA_QUADS_WIDE_ = 2, FIBULA_ANY_WIDTH_ = 3 };

FIBULA_LOOP_ uint64_t fibula_cell_(const uint8_t *at, unsigned log_bytes)
{
	if (log_bytes == 0)
		return __atomic_load_n(at, __ATOMIC_RELAXED);
	if (log_bytes == 1)
		return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_RELAXED);
	if (log_bytes == 2)
		return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
	return fibula_load_((const uint64_t *)(const void *)at);
}

/* The values of a burst of an Othello. 0 if a part has a stash or ends behind the table: then look each up alone. */
FIBULA_VECTOR_ int fibula_cells_avx2_(const struct fibula_fib *fib, const struct fibula_view_ *view, const uint64_t *digests,
	size_t n, uint16_t *values, unsigned log_bytes, int has_fingerprints)
{
	const uint8_t *base = (const uint8_t *)fib->words;
	uint64_t first[FIBULA_BURST], second[FIBULA_BURST], shifts[2][FIBULA_BURST];
	const __m256i end = fibula_all4_(8 * (fib->n_words - FIBULA_STASH_));
	const __m256i cells = fibula_all4_(fib->cells_a_word), bits = fibula_all4_(fib->cell_bits);
	__m256i any = _mm256_setzero_si256(), behind = any;
	for (size_t i = 0; i < n; i += 4) {
		__m256i entry = fibula_entries4_(view, digests + i);
		__m256i side = _mm256_and_si256(entry, fibula_all4_(0xFFFF));
		__m256i at = _mm256_slli_epi64(_mm256_srli_epi64(entry, 32), 6);
		__m256i x = fibula_tweaked4_(digests + i, _mm256_and_si256(_mm256_srli_epi64(entry, 16), fibula_all4_(0x7FFF)));
		__m256i second_at = _mm256_add_epi64(at, _mm256_slli_epi64(side, 3));
		any = _mm256_or_si256(any, entry);
		behind = _mm256_or_si256(behind, _mm256_sub_epi64(end, _mm256_add_epi64(second_at, _mm256_slli_epi64(side, 3))));
		__m256i a, b;
		if (log_bytes == FIBULA_ANY_WIDTH_) {
			/* The word, and from the fraction of a word the cell in it. */
			a = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), side);
			b = _mm256_mul_epu32(x, side);
			_mm256_storeu_si256((__m256i *)(shifts[0] + i),
				_mm256_mul_epu32(_mm256_srli_epi64(_mm256_mul_epu32(a, cells), 32), bits));
			_mm256_storeu_si256((__m256i *)(shifts[1] + i),
				_mm256_mul_epu32(_mm256_srli_epi64(_mm256_mul_epu32(b, cells), 32), bits));
		} else {
			__m256i n_cells = _mm256_slli_epi64(side, 3 - (int)log_bytes);
			a = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), n_cells);
			b = _mm256_mul_epu32(x, n_cells);
		}
		a = _mm256_slli_epi64(_mm256_srli_epi64(a, 32), (int)log_bytes);
		b = _mm256_slli_epi64(_mm256_srli_epi64(b, 32), (int)log_bytes);
		_mm256_storeu_si256((__m256i *)(first + i), _mm256_add_epi64(at, a));
		_mm256_storeu_si256((__m256i *)(second + i), _mm256_add_epi64(second_at, b));
	}
	/* The flag of a stash is bit 31; what is behind the table is negative. */
	if (_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_or_si256(_mm256_slli_epi64(any, 32), behind))))
		return 0;
	for (size_t i = 0; fib->fetches && i < n; i++) {
		fibula_fetch_(base + first[i]);
		fibula_fetch_(base + second[i]);
	}
	const uint64_t value = ~0ull >> (64 - fib->value_bits), indicator = 1ull << (fib->cell_bits - 1),
		fingerprint = (indicator - 1) & ~value;
	for (size_t i = 0; i < n; i++) {
		uint64_t a = fibula_cell_(base + first[i], log_bytes), b = fibula_cell_(base + second[i], log_bytes);
		if (log_bytes == FIBULA_ANY_WIDTH_) {
			a >>= shifts[0][i];
			b >>= shifts[1][i];
		}
		if (has_fingerprints) {
			uint64_t f = (digests[i] ^ digests[i] >> 32) * 0x243F6A8885A308D3ull >> (65 - fib->cell_bits);
			uint64_t differs = ((a ^ b ^ f) & fingerprint) | (~(a & b) & indicator);
			values[i] = (uint16_t)(differs ? 0 : (a ^ b) & value);
		} else
			values[i] = (uint16_t)((a ^ b) & value);
	}
	return 1;
}

/* The cell in a slot of a bucket, and other bits above it. */
FIBULA_LOOP_ uint64_t fibula_slot_(const struct fibula_fib *fib, const uint8_t *bucket, uint64_t slot, unsigned log_bytes)
{
	if (log_bytes != FIBULA_ANY_WIDTH_)
		return fibula_cell_(bucket + (slot << log_bytes), log_bytes);
	uint64_t word = slot * fib->per_word >> 37, in_word = slot - word * fib->cells_a_word;
	return fibula_cell_(bucket + 8 * word, log_bytes) >> in_word * fib->value_bits;
}

/* The values of a burst of a line table with 3 or 4 cells a name. 0 if a group ends behind the table. */
FIBULA_VECTOR_ int fibula_buckets_avx2_(const struct fibula_fib *fib, const struct fibula_view_ *view,
	const uint64_t *digests, size_t n, uint16_t *values, unsigned parts, unsigned log_bytes)
{
	const uint8_t *base = (const uint8_t *)fib->words;
	uint64_t lines[FIBULA_BURST], starts = 0, lengths = 0;
	uint16_t slots[FIBULA_BURST][4];
	const int is_wide = log_bytes == FIBULA_ANY_WIDTH_ ? fib->value_bits > 8 : log_bytes == FIBULA_PAIRS_WIDE_;
	const __m128i log_line = _mm_cvtsi32_si128(6 + is_wide);
	const __m256i end = fibula_all4_(8 * (fib->n_words - FIBULA_STASH_));
	__m256i behind = _mm256_setzero_si256();
	for (size_t i = 0; i < n; i += 4) {
		__m256i entry = fibula_entries4_(view, digests + i);
		__m256i level0 = _mm256_and_si256(entry, fibula_all4_(0xFFFF));
		__m256i others = _mm256_add_epi64(_mm256_and_si256(_mm256_srli_epi64(entry, 16), fibula_all4_(0x3FFF)),
			_mm256_and_si256(_mm256_srli_epi64(entry, 30), fibula_all4_(1)));
		__m256i at = _mm256_slli_epi64(_mm256_srli_epi64(entry, 32), 6);
		__m256i digest = _mm256_loadu_si256((const __m256i *)(digests + i));
		__m256i bucket = _mm256_srli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(digest, 8), level0), 32);
		__m256i all = _mm256_sll_epi64(_mm256_add_epi64(level0, others), log_line);
		behind = _mm256_or_si256(behind, _mm256_sub_epi64(end, _mm256_add_epi64(at, all)));
		_mm256_storeu_si256((__m256i *)(lines + i), _mm256_add_epi64(at, _mm256_sll_epi64(bucket, log_line)));
	}
	if (_mm256_movemask_pd(_mm256_castsi256_pd(behind)))
		return 0;
	for (size_t i = 0; fib->fetches && i < n; i++) {
		fibula_fetch_(base + lines[i]);
		if (is_wide)
			fibula_fetch_(base + lines[i] + 64);
	}
	for (unsigned j = 0; j < parts; j++) {
		starts |= (uint64_t)fib->starts[j] << 16 * j;
		lengths |= (uint64_t)(fib->starts[j + 1] - fib->starts[j]) << 16 * j;
	}
	const __m256i start = fibula_all4_(starts), length = fibula_all4_(lengths), byte = fibula_all4_(0xFF);
	uint32_t kept = 0;
	for (size_t i = 0; i < n; i += 4) {
		/* Tweak and threshold are the first two bytes of a bucket. */
		__m256i head = fibula_four_(base + lines[i], base + lines[i + 1], base + lines[i + 2], base + lines[i + 3]);
		__m256i digest = _mm256_loadu_si256((const __m256i *)(digests + i));
		__m256i x = fibula_tweaked4_(digests + i, _mm256_and_si256(head, byte));
		_mm256_storeu_si256((__m256i *)slots[i], _mm256_add_epi16(_mm256_mulhi_epu16(x, length), start));
		/* The rank is a byte minus its highest bit. */
		__m256i rank = _mm256_sub_epi64(_mm256_and_si256(digest, byte),
			_mm256_and_si256(_mm256_srli_epi64(digest, 7), fibula_all4_(1)));
		__m256i keeps = _mm256_cmpgt_epi64(_mm256_and_si256(_mm256_srli_epi64(head, 8), byte), rank);
		kept |= (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(keeps)) << i;
	}
	const uint64_t value = ~0ull >> (64 - fib->value_bits);
	for (size_t i = 0; i < n; i++) {
		/* No loop: compilers do not unroll one of three. */
		uint64_t sum = fibula_slot_(fib, base + lines[i], slots[i][0], log_bytes) ^
			fibula_slot_(fib, base + lines[i], slots[i][1], log_bytes) ^
			fibula_slot_(fib, base + lines[i], slots[i][2], log_bytes);
		if (parts > 3)
			sum ^= fibula_slot_(fib, base + lines[i], slots[i][3], log_bytes);
		values[i] = (uint16_t)(sum & value);
	}
	/* One name in fifty is in another bucket. */
	for (uint32_t bumped = ~kept & (uint32_t)((1ull << n) - 1); bumped; bumped &= bumped - 1) {
		size_t i = (size_t)__builtin_ctz(bumped);
		struct fibula_part_ part = fibula_part_(fib, fibula_entry_(view, digests[i]));
		int failed = 0;
		values[i] = (uint16_t)fibula_line_(fib, &part, digests[i], 0, &failed);
	}
	return 1;
}

/* A burst by the loop for its table. */
FIBULA_VECTOR_ int fibula_burst_of_avx2_(const struct fibula_fib *fib, const struct fibula_view_ *view,
	const uint64_t *digests, size_t n, uint16_t *values)
{
	if (fib->design == FIBULA_LINE) {
		if (fib->value_bits == 8)
			return fib->parts_of_name == 3 ? fibula_buckets_avx2_(fib, view, digests, n, values, 3, FIBULA_BYTES_WIDE_)
				: fibula_buckets_avx2_(fib, view, digests, n, values, 4, FIBULA_BYTES_WIDE_);
		if (fib->value_bits == 16)
			return fib->parts_of_name == 3 ? fibula_buckets_avx2_(fib, view, digests, n, values, 3, FIBULA_PAIRS_WIDE_)
				: fibula_buckets_avx2_(fib, view, digests, n, values, 4, FIBULA_PAIRS_WIDE_);
		return fibula_buckets_avx2_(fib, view, digests, n, values, fib->parts_of_name, FIBULA_ANY_WIDTH_);
	}
	if (fib->fingerprint_bits) {
		if (fib->cell_bits == 16)
			return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_PAIRS_WIDE_, 1);
		if (fib->cell_bits == 32)
			return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_QUADS_WIDE_, 1);
		return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_ANY_WIDTH_, 1);
	}
	if (fib->cell_bits == 8)
		return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_BYTES_WIDE_, 0);
	if (fib->cell_bits == 16)
		return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_PAIRS_WIDE_, 0);
	return fibula_cells_avx2_(fib, view, digests, n, values, FIBULA_ANY_WIDTH_, 0);
}

FIBULA_TARGET_ __attribute__((noinline, unused)) static int fibula_burst_avx2_(const struct fibula_fib *fib,
	const struct fibula_view_ *view, const uint64_t *digests, size_t n, uint16_t *values)
{
	/* A full burst has a loop of its own, which the compiler unrolls. */
	return n == FIBULA_BURST ? fibula_burst_of_avx2_(fib, view, digests, FIBULA_BURST, values)
		: fibula_burst_of_avx2_(fib, view, digests, n, values);
}
#endif

/* The digests of up to FIBULA_BURST names: see fibula_lookup_burst. */
static inline void fibula_digests_(const struct fibula_fib *fib, const uint8_t *names, size_t len, size_t stride, size_t n,
	uint64_t *digests)
{
	if (fib->family == 1 && len <= 8) {
#ifdef FIBULA_HAS_AVX2_
		if (fib->has_avx2) {
			fibula_short_digests_avx2_(fib, names, len, stride, n, digests);
			return;
		}
#endif
		fibula_short_digests_(fib, names, len, stride, n, digests);
		return;
	}
	for (size_t i = 0; i < n; i++)
		digests[i] = fibula_digest(fib, names + i * stride, len);
	for (size_t i = n; i % 4; i++)
		digests[i] = 0;
}

/* The values of digests in the state of a view. */
static inline void fibula_burst_(const struct fibula_fib *fib, const struct fibula_view_ *view, const uint64_t *digests,
	size_t n, uint16_t *values)
{
	uint64_t entries[FIBULA_BURST];
	int failed = 0;
#ifdef FIBULA_HAS_AVX2_
	if (fib->has_avx2 ? fibula_burst_avx2_(fib, view, digests, n, values) : fibula_burst_fast_(fib, view, digests, n, values))
		return;
#else
	if (fibula_burst_fast_(fib, view, digests, n, values))
		return;
#endif
	for (size_t i = 0; i < n; i++)
		entries[i] = fibula_entry_(view, digests[i]);
	for (size_t i = 0; i < n; i++) {
		struct fibula_part_ part = fibula_part_(fib, entries[i]);
		if (fib->design == FIBULA_LINE) {
			uint64_t bucket = (digests[i] >> 8 & 0xFFFFFFFF) * part.n[0] >> 32;
			fibula_fetch_(fib->words + part.words + bucket * fibula_bucket_words_(fib));
		} else {
			struct fibula_spots_ spots = fibula_spots_(fib, &part, digests[i]);
			fibula_fetch_(fib->words + spots.a.word);
			fibula_fetch_(fib->words + spots.b.word);
		}
	}
	for (size_t i = 0; i < n; i++)
		values[i] = (uint16_t)fibula_value_of_(fib, entries[i], digests[i], 0, &failed);
}

/* The values of up to FIBULA_BURST names of `len` bytes each, which lie `stride` bytes apart. */
static inline void fibula_lookup_burst(const struct fibula_fib *fib, const void *names, size_t len, size_t stride,
	size_t n, uint16_t *values)
{
	uint64_t digests[FIBULA_BURST];
	n = n < FIBULA_BURST ? n : FIBULA_BURST;
	fibula_digests_(fib, (const uint8_t *)names, len, stride, n, digests);
	struct fibula_view_ view = fibula_begin_(fib);
	if (!(view.count & 1)) {
		fibula_burst_(fib, &view, digests, n, values);
		if (fibula_is_whole_(fib, &view))
			return;
	}
	for (size_t i = 0; i < n; i++)
		values[i] = fibula_lookup_digest(fib, digests[i]);
}

/* What a value means; drop for one that has no action. */
static inline struct fibula_action fibula_action(const struct fibula_fib *fib, uint16_t value)
{
	struct fibula_action action;
	for (int i = 0; i < FIBULA_TRIES_; i++) {
		struct fibula_view_ view = fibula_begin_(fib);
		uint64_t annex = fibula_acquire_(fib->words + FIBULA_ANNEX_), record[3] = {0, 0, 0};
		uint64_t at = 8 * (annex & 0xFFFFFFFF) + 3 * (uint64_t)value;
		if (24 * ((uint64_t)value + 1) <= annex >> 32 && at + 3 <= fib->n_words)
			for (int word = 0; word < 3; word++)
				record[word] = fibula_load_(fib->words + at + word);
		memset(&action, 0, sizeof action);
		action.verb = (record[0] & 0xFF) <= FIBULA_PUNT ? (enum fibula_verb)(record[0] & 0xFF) : FIBULA_DROP;
		action.address_bytes = (uint8_t)(record[0] >> 8);
		action.port = (uint16_t)(record[0] >> 16);
		action.node = (uint32_t)(record[0] >> 32);
		memcpy(action.address, record + 1, 16);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (fibula_load_(fib->words + FIBULA_REUSE_) == view.reuse)
			return action;
	}
	memset(&action, 0, sizeof action);
	return action;
}

/* ---- files ---- */

/* Fields of a file, in order. Once one is missing, all are 0 and `failed` says so. */
struct fibula_reader_ {
	const uint8_t *at;
	size_t left;
	int failed;
};

static inline const uint8_t *fibula_take_(struct fibula_reader_ *r, size_t n)
{
	static const uint8_t nothing[64] = {0};
	if (r->failed || n > r->left) {
		r->failed = 1;
		return n <= sizeof nothing ? nothing : NULL;
	}
	const uint8_t *taken = r->at;
	r->at += n; r->left -= n;
	return taken;
}

static inline uint64_t fibula_uint_(struct fibula_reader_ *r, size_t n) { return fibula_word_(fibula_take_(r, n), n); }

static inline void fibula_hash_(struct fibula_hash *h, uint8_t family, const uint8_t *key)
{
	memset(h, 0, sizeof *h);
	for (uint64_t i = 0; i < 2; i++) {
		h->a[i] = fibula_derive_(key, 1, i);
		h->c[i] = fibula_derive_(key, 1, 2 + i);
		h->k[i] = fibula_derive_(key, 3, i);
	}
	for (uint64_t i = 0; family == 1 && i <= 16; i++)
		h->addend[i] = fibula_derive_(key, 1, 16 + i);
	for (uint64_t i = 0; i < 4; i++)
		h->s[i] = fibula_derive_(key, 2, i);
	for (uint64_t i = 0; i < 8; i++)
		h->crc[i] = fibula_derive_(key, 4, i);
	h->last = fibula_derive_(key, 4, 8);
}

/* Bytes of a name of this kind; 0 if they differ, and for kinds that do not exist. */
static inline uint8_t fibula_name_bytes_(uint8_t kind, uint8_t width)
{
	static const uint8_t bytes[8] = {0, 6, 4, 16, 0, 4, 0, 0};
	return kind == 6 ? width : kind < 8 ? bytes[kind] : 0;
}

/* The actions of a file, as records of a table in memory, if `records` is given. NULL, or a reason. */
static inline const char *fibula_actions_(struct fibula_reader_ *r, uint64_t *n, uint8_t *records)
{
	*n = fibula_uint_(r, 4);
	if (*n == 0 || *n > r->left || *n > 1 << 16)
		return "the number of actions";
	for (uint64_t i = 0; i < *n; i++) {
		uint8_t record[24] = {0};
		uint64_t verb = fibula_uint_(r, 1);
		if (verb > FIBULA_PUNT)
			return "an action";
		if (i == 0 && verb != FIBULA_DROP)
			return "action 0, which must be drop";
		record[0] = (uint8_t)verb;
		if (verb == FIBULA_PORT)
			memcpy(record + 2, fibula_take_(r, 2), 2);
		if (verb == FIBULA_TUNNEL) {
			memcpy(record + 4, fibula_take_(r, 4), 4);
			uint64_t form = fibula_uint_(r, 1);
			if (form != 0 && form != 4 && form != 6)
				return "the address of a tunnel";
			record[1] = form == 6 ? 16 : (uint8_t)form;
			memcpy(record + 8, fibula_take_(r, record[1]), record[1]);
		}
		if (records)
			memcpy(records + 24 * i, record, 24);
	}
	return r->failed ? "actions that end too early" : NULL;
}

/* A table in memory while it is made: how long its directory and its blocks are, and, once there is memory, that. */
struct fibula_making_ {
	uint64_t *words;
	uint64_t directory, blocks, end; /* where they begin, in words */
	uint8_t depth;
};

static inline uint64_t fibula_lines_(uint64_t words) { return (words + 7) / 8 * 8; }

/* Reads all parts: what they need, and, once there is memory for that, writes them there. NULL, or what is wrong. */
static inline const char *fibula_parts_(const struct fibula_fib *fib, struct fibula_reader_ r, uint64_t n_parts,
	struct fibula_making_ *made)
{
	uint64_t covered = 0, at = made->blocks;
	for (uint64_t i = 0; i < n_parts; i++) {
		uint64_t prefix = fibula_uint_(&r, 4), depth = fibula_uint_(&r, 1), n_stash = fibula_uint_(&r, 1), n_words, entry;
		if (depth > 24 || prefix >> depth || n_stash > (FIBULA_STASH_ - 1) / 2)
			return "a part of the table";
		if (fib->design == FIBULA_LINE) {
			uint64_t n[3];
			for (int level = 0; level < 3; level++)
				n[level] = fibula_uint_(&r, 2);
			if (n[0] == 0 || n[1] > 0x3FFF || n[2] > 1)
				return "the buckets of a group";
			n_words = (n[0] + n[1] + n[2]) * fibula_bucket_words_(fib);
			entry = n[0] | n[1] << 16 | n[2] << 30;
		} else {
			uint64_t tweak = fibula_uint_(&r, 2), a = fibula_uint_(&r, 4), b = fibula_uint_(&r, 4);
			if (a == 0 || a != b || a % fib->cells_a_word || a / fib->cells_a_word > 0xFFFF || tweak > 0x7FFF)
				return "the cells of a shard";
			n_words = 2 * (a / fib->cells_a_word);
			entry = a / fib->cells_a_word | tweak << 16;
		}
		fibula_take_(&r, 16); /* version and digest */
		const uint8_t *stash = fibula_take_(&r, 16 * n_stash);
		if (r.failed || n_words > r.left / 8)
			return "a part that ends too early";
		const uint8_t *contents = fibula_take_(&r, 8 * n_words);
		entry |= at / 8 << 32 | (uint64_t)(n_stash > 0) << 31;
		if (made->words) {
			memcpy(made->words + at, contents, 8 * n_words);
			if (n_stash) {
				made->words[at + n_words] = n_stash;
				memcpy(made->words + at + n_words + 1, stash, 16 * n_stash);
			}
			uint64_t width = made->depth - depth;
			for (uint64_t j = prefix << width; j < (prefix + 1) << width; j++) {
				if (made->words[made->directory + j])
					return "two parts for one prefix";
				made->words[made->directory + j] = entry;
			}
		}
		at += fibula_lines_(n_words + (n_stash ? FIBULA_STASH_ : 0));
		covered += 1ull << (24 - depth);
		made->depth = depth > made->depth ? (uint8_t)depth : made->depth;
	}
	made->end = at;
	if (r.left)
		return "bytes behind the table";
	return covered == 1ull << 24 ? NULL : "prefixes that no part has";
}

#ifdef __linux__
int madvise(void *, size_t, int)
#ifdef __cplusplus
	noexcept(true)
#endif
	;
#define FIBULA_HUGE_ ((size_t)2 << 20)
#define FIBULA_MADV_HUGEPAGE_ 14
#define FIBULA_MADV_COLLAPSE_ 25
#endif

/* Memory for a table, all zero. Buckets are lines of the cache; a large table is on huge pages, where there are some. */
static inline uint64_t *fibula_memory_(size_t bytes)
{
	size_t whole = bytes, line = 64;
#ifdef __linux__
	if (bytes >= FIBULA_HUGE_ / 2) {
		line = FIBULA_HUGE_;
		whole = (bytes + FIBULA_HUGE_ - 1) / FIBULA_HUGE_ * FIBULA_HUGE_;
	}
#endif
	void *memory = aligned_alloc(line, whole);
	if (!memory)
		return NULL;
#ifdef __linux__
	if (line == FIBULA_HUGE_)
		madvise(memory, whole, FIBULA_MADV_HUGEPAGE_);
#endif
	memset(memory, 0, bytes);
#ifdef __linux__
	/* What the heap had before has small pages already: they become huge ones (Linux 6.1). */
	if (line == FIBULA_HUGE_)
		madvise(memory, whole, FIBULA_MADV_COLLAPSE_);
#endif
	return (uint64_t *)memory;
}

/* Makes the table in memory. NULL, or what is wrong. */
static inline const char *fibula_table_(struct fibula_fib *fib, struct fibula_reader_ actions, uint64_t n_actions,
	struct fibula_reader_ r)
{
	uint64_t form = fibula_uint_(&r, 1), n_parts = fibula_uint_(&r, 4);
	if (form != (fib->design == FIBULA_LINE ? 1 : 2) || n_parts == 0 || n_parts > r.left / 28)
		return "the table";
	struct fibula_making_ made = {NULL, FIBULA_ROOT_WORDS_, 0, 0, 0};
	const char *wrong = fibula_parts_(fib, r, n_parts, &made);
	if (wrong)
		return wrong;
	made.blocks = made.directory + fibula_lines_(1ull << made.depth);
	/* The parts, then the actions. */
	uint64_t annex = made.end + made.blocks, n_words = annex + fibula_lines_(3 * n_actions + FIBULA_STASH_);
	if (annex / 8 > 0xFFFFFFFF)
		return "the size of its table";
	made.words = fibula_memory_(8 * n_words);
	if (!made.words)
		return "no memory for its table";
	fib->words = made.words;
	fib->n_words = n_words;
	made.words[FIBULA_DIRECTORY_] = made.directory / 8 | (uint64_t)made.depth << 32;
	made.words[FIBULA_ANNEX_] = annex / 8 | 24 * n_actions << 32;
	fibula_actions_(&actions, &n_actions, (uint8_t *)(made.words + annex));
	return fibula_parts_(fib, r, n_parts, &made);
}

static inline void fibula_free(struct fibula_fib *fib)
{
	if (!fib)
		return;
#ifdef __linux__
	if (fib->inode)
		munmap((void *)(uintptr_t)fib->words, 8 * fib->n_words);
	else
#endif
	if (!fib->is_lent)
		free((void *)(uintptr_t)fib->words);
	free(fib);
}

/* Whether it pays to fetch what a burst reads before it is read. Where the caches are near enough, the processor begins the
 * reads of many names by itself, and a fetch costs its instruction. */
static inline int fibula_fetches_(const struct fibula_fib *fib)
{
	long cache = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
	cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
	uint64_t words = (cache > 0 ? (uint64_t)cache : 1 << 20) / 8;
	return fib->n_words > (fib->design == FIBULA_LINE ? words / 2 : 4 * words);
}

/* What follows from the widths of cells. 0 if there are no such tables. */
static inline int fibula_form_(struct fibula_fib *fib, int has_fingerprints)
{
	fib->cell_bits = (uint8_t)(fib->value_bits + fib->fingerprint_bits);
	if (fib->family < 1 || fib->family > 4 || fib->value_bits < 1 || fib->value_bits > 16 || fib->cell_bits > 64 ||
		fib->fingerprint_bits > 48 || (!has_fingerprints && fib->fingerprint_bits))
		return 0;
#ifdef FIBULA_HAS_AVX2_
	fib->has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#endif
	fib->cells_a_word = 64u / fib->cell_bits;
	fib->per_word = (1ull << 37) / fib->cells_a_word + 1;
	if (fib->design == FIBULA_LINE) {
		/* The header takes the first slots of a bucket. */
		uint32_t first = (16 + fib->value_bits - 1u) / fib->value_bits;
		uint32_t n_cells = fibula_bucket_words_(fib) * fib->cells_a_word - first;
		for (uint32_t j = 0; j <= fib->parts_of_name; j++)
			fib->starts[j] = (uint16_t)(first + n_cells * j / fib->parts_of_name);
	}
	return 1;
}

/* The table in the bytes of a file, which are not needed afterwards. NULL, and why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_load(const void *bytes, size_t len, char why[FIBULA_WHY])
{
	static const char *const designs[5] = {"concise", "ofw", "line", "line-fast", "line-small"};
	const char *wrong = NULL;
	char unknown[32] = "";
	struct fibula_reader_ r = {(const uint8_t *)bytes, len, 0}, actions;
	uint64_t n_actions = 0;
	struct fibula_fib *fib = (struct fibula_fib *)calloc(1, sizeof *fib);
	struct fibula_hash sum;
	int design = 0;
	if (!fib) {
		wrong = "no memory";
		goto refused;
	}
	if (len < 24 || memcmp(bytes, "FIBULAF2", 8)) {
		wrong = "it does not begin like a FIB file of this version";
		goto refused;
	}
	fibula_hash_(&sum, 2, (const uint8_t *)"fibula southbound fingerprint 01");
	if (fibula_wy_(sum.s, r.at, len - 8) != fibula_word_(r.at + len - 8, 8)) {
		wrong = "it is damaged or cut";
		goto refused;
	}
	r.at += 8; r.left -= 16;
	fib->n_names = fibula_uint_(&r, 8);
	{
		size_t n = (size_t)fibula_uint_(&r, 4);
		const uint8_t *name = n < sizeof unknown ? fibula_take_(&r, n) : NULL;
		if (!name) {
			wrong = "the name of its design";
			goto refused;
		}
		memcpy(unknown, name, n);
		while (design < 5 && strcmp(unknown, designs[design]))
			design++;
		if (design == 5) {
			wrong = "fibula.h reads concise, ofw, line, line-fast and line-small, not design";
			goto refused;
		}
		unknown[0] = 0;
	}
	{
		uint8_t kind = (uint8_t)fibula_uint_(&r, 1), width = (uint8_t)fibula_uint_(&r, 1);
		fib->kind = kind;
		fib->name_bytes = fibula_name_bytes_(kind, width);
	}
	fib->family = (uint8_t)fibula_uint_(&r, 1);
	fibula_hash_(&fib->hash, fib->family, fibula_take_(&r, 32));
	fib->value_bits = (uint8_t)fibula_uint_(&r, 1);
	fib->fingerprint_bits = (uint8_t)fibula_uint_(&r, 1);
	fibula_uint_(&r, 8);
	fib->design = design < 2 ? FIBULA_OTHELLO : FIBULA_LINE;
	fib->parts_of_name = design == 4 ? 4 : 3;
	if (!fibula_form_(fib, design == 1)) {
		wrong = "its hash family, or the bits of its values";
		goto refused;
	}
	actions = r;
	wrong = fibula_actions_(&r, &n_actions, NULL);
	if (wrong)
		goto refused;
	{
		uint64_t table = fibula_uint_(&r, 4);
		if (r.failed || table != r.left)
			wrong = "the length of its table";
		else
			wrong = fibula_table_(fib, actions, n_actions, r);
	}
	fib->fetches = (uint8_t)fibula_fetches_(fib);
	if (!wrong)
		return fib;
refused:
	fibula_free(fib);
	if (why)
		snprintf(why, FIBULA_WHY, "this FIB file cannot be used: %s%s%s; build it again", wrong, unknown[0] ? " " : "",
			unknown);
	return NULL;
}

/* ---- tables of running switches ---- */

/* Whether everything that a lookup may follow is inside the table, in some state of it. */
static inline const char *fibula_bounds_(const struct fibula_fib *fib)
{
	for (int i = 0; i < FIBULA_TRIES_; i++) {
		struct fibula_view_ view = fibula_begin_(fib);
		uint64_t word = fibula_acquire_(fib->words + FIBULA_DIRECTORY_), annex = fibula_load_(fib->words + FIBULA_ANNEX_);
		const char *wrong = NULL;
		if (view.directory != fib->words + 8 * (word & 0xFFFFFFFF) || view.depth != word >> 32)
			wrong = "its directory is behind its end";
		else if (8 * (annex & 0xFFFFFFFF) + 3 * ((annex >> 32) / 24) > fib->n_words || (annex >> 32) % 24)
			wrong = "its actions are behind its end";
		for (uint64_t j = 0; !wrong && j < 1ull << view.depth; j++)
			if (!fibula_part_(fib, fibula_load_(view.directory + j)).n_words)
				wrong = "a part is behind its end";
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (fibula_load_(fib->words + FIBULA_REUSE_) == view.reuse)
			return wrong;
	}
	return "it changes too fast";
}

/* Reads what a table in memory says of itself. NULL, or what is wrong. */
static inline const char *fibula_described_(struct fibula_fib *fib, const void *memory, uint64_t bytes, int is_all)
{
	const uint64_t *words = (const uint64_t *)memory;
	uint8_t form[8], names[8];
	uint64_t magic = fibula_acquire_(words + FIBULA_MAGIC_), said = words[FIBULA_BYTES_];
	if (memcmp(&magic, "FIBULAM1", 8))
		return "it does not begin like a table of this version";
	if (is_all ? said != bytes : said > bytes || said < 2 * 8 * FIBULA_ROOT_WORDS_ || said % 64)
		return "it is cut";
	memcpy(form, words + FIBULA_FORM_, 8);
	memcpy(names, words + FIBULA_NAMES_, 8);
	fib->words = words;
	fib->n_words = said / 8;
	fib->design = (enum fibula_design)form[0];
	fib->value_bits = form[1];
	fib->fingerprint_bits = form[2];
	fib->parts_of_name = form[3];
	fib->family = names[0];
	fib->kind = names[1];
	fib->name_bytes = fibula_name_bytes_(names[1], names[2]);
	fibula_hash_(&fib->hash, fib->family, (const uint8_t *)(words + FIBULA_NAMES_ + 1));
	if ((form[0] == FIBULA_LINE ? form[3] != 3 && form[3] != 4 : form[0] != FIBULA_OTHELLO || form[3] != 2) ||
		!fibula_form_(fib, form[0] == FIBULA_OTHELLO))
		return "its structure is none that fibula.h reads";
	fib->fetches = (uint8_t)fibula_fetches_(fib);
	return fibula_bounds_(fib);
}

/* The table that libfibula's fibula_table_place put into memory which this process maps, too: a memzone of DPDK, for
 * example. It begins there, at a multiple of 64 bytes, and `bytes` of it may be read. fibula_free leaves the memory as it is.
 * NULL, and why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_attach_memory(const void *memory, size_t bytes, char why[FIBULA_WHY])
{
	struct fibula_fib *fib = (struct fibula_fib *)calloc(1, sizeof *fib);
	const char *wrong = !fib ? "no memory" : NULL;
	if (!wrong && (!memory || (uintptr_t)memory % 64))
		wrong = "it does not begin at a multiple of 64";
	if (!wrong && bytes < 2 * 8 * FIBULA_ROOT_WORDS_)
		wrong = "it is too short";
	if (!wrong) {
		fib->is_lent = 1;
		wrong = fibula_described_(fib, memory, bytes, 0);
	}
	if (!wrong)
		return fib;
	free(fib);
	if (why)
		snprintf(why, FIBULA_WHY, "this memory has no table that can be used: %s; was it placed there?", wrong);
	return NULL;
}

#ifdef __linux__

/* A file in memory, at a multiple of a huge page if it consists of such: otherwise no part of it could be on one. */
static inline void *fibula_map_(int file, size_t bytes)
{
	const size_t huge = (size_t)2 << 20;
	char *from = bytes % huge ? (char *)MAP_FAILED
				  : (char *)mmap(NULL, bytes + huge, PROT_READ, MAP_SHARED, file, 0);
	if (from == (char *)MAP_FAILED)
		return mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	size_t before = (huge - (uintptr_t)from % huge) % huge;
	void *mapped = mmap(from + before, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
	if (mapped == MAP_FAILED) {
		munmap(from, bytes + huge);
		return MAP_FAILED;
	}
	if (before)
		munmap(from, before);
	munmap(from + before + bytes, huge - before);
	return mapped;
}

/* The table that a switch shows at `path`. It stays readable until fibula_free, whatever becomes of the switch. NULL, and
 * why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_attach(const char *path, char why[FIBULA_WHY])
{
	const char *wrong = NULL;
	struct stat about;
	struct fibula_fib *fib = (struct fibula_fib *)calloc(1, sizeof *fib);
	void *mapped = MAP_FAILED;
	int file = open(path, O_RDONLY), error = errno;
	if (!fib || file < 0 || fstat(file, &about)) {
		if (why)
			snprintf(why, FIBULA_WHY, "cannot read %.100s: %.40s", path, strerror(error));
		free(fib);
		if (file >= 0)
			close(file);
		return NULL;
	}
	if (about.st_size < 2 * 8 * FIBULA_ROOT_WORDS_ || about.st_size % 64)
		wrong = "it is too short";
	else if ((mapped = fibula_map_(file, (size_t)about.st_size)) == MAP_FAILED)
		wrong = "it cannot be mapped";
	close(file);
	if (!wrong) {
		fib->device = about.st_dev;
		fib->inode = about.st_ino;
		wrong = fibula_described_(fib, mapped, (uint64_t)about.st_size, 1);
	}
	if (!wrong)
		return fib;
	if (mapped != MAP_FAILED)
		munmap(mapped, (size_t)about.st_size);
	free(fib);
	if (why)
		snprintf(why, FIBULA_WHY, "%.60s is not a usable table: %s; does a switch of this version show it?", path, wrong);
	return NULL;
}

/* Takes the table that is at `path` now, if it differs from *fib, which is then freed. Returns 1 if so; 0 if *fib is still
 * current; -1 if no table is usable, and why: then *fib stays. Call it once a second, while no thread looks up names. */
static inline int fibula_refresh(struct fibula_fib **fib, const char *path, char why[FIBULA_WHY])
{
	struct stat about;
	if (!stat(path, &about) && about.st_dev == (*fib)->device && about.st_ino == (*fib)->inode)
		return 0;
	struct fibula_fib *newer = fibula_attach(path, why);
	if (!newer)
		return -1;
	fibula_free(*fib);
	*fib = newer;
	return 1;
}

/* Whether the switch that writes the table still runs. */
static inline int fibula_is_written(const struct fibula_fib *fib)
{
	char path[64], line[1024];
	snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)fibula_load_(fib->words + FIBULA_WRITER_));
	FILE *file = fopen(path, "r");
	size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
	if (file)
		fclose(file);
	line[n] = 0;
	/* The start time is the 22nd field; the second, in parentheses, may have spaces. */
	char *at = strrchr(line, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at && strtoull(at, NULL, 10) == fibula_load_(fib->words + FIBULA_WRITER_ + 1);
}

#endif

/* The table of a file, or the one that a switch shows there. NULL, and why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_open(const char *path, char why[FIBULA_WHY])
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes = NULL;
	struct fibula_fib *fib = NULL;
	long len = -1;
#ifdef __linux__
	char magic[8];
	if (file && fread(magic, 1, 8, file) == 8 && !memcmp(magic, "FIBULAM1", 8)) {
		fclose(file);
		return fibula_attach(path, why);
	}
#endif
	if (file && !fseek(file, 0, SEEK_END))
		len = ftell(file);
	if (len >= 0 && !fseek(file, 0, SEEK_SET))
		bytes = (uint8_t *)malloc((size_t)len + 1);
	if (bytes && fread(bytes, 1, (size_t)len, file) == (size_t)len)
		fib = fibula_load(bytes, (size_t)len, why);
	else if (why)
		snprintf(why, FIBULA_WHY, "cannot read %.100s: %.40s", path, strerror(errno));
	free(bytes);
	if (file)
		fclose(file);
	return fib;
}

#ifdef __cplusplus
}
#endif
#endif
