/* fibula.h: looks names up in FIB files, from C11 and C++17, with nothing but libc.
 *
 *     char why[FIBULA_WHY];
 *     struct fibula_fib *fib = fibula_open("names.fib", why);
 *     if (!fib) { fprintf(stderr, "%s\n", why); exit(1); }
 *     struct fibula_action action = fibula_action(fib, fibula_lookup(fib, mac, 6));
 *
 * `fibula fib build` writes such files. Designs: concise, ofw, line, line-fast, line-small. Names are their bytes as frames
 * carry them, up to 64. A lookup neither allocates nor fails; any number of threads may look up in one table. A name that
 * was not in the list gets what its design gives aliens: concise and line any action, ofw mostly drop.
 *
 * Cost: a digest, and two cells (concise, ofw) or one bucket (line). fibula_lookup_burst fetches those of up to 32 names
 * at once: take it for tables that do not fit the cache.
 * Formats: docs/formats/fib-file.md, othello.md, line.md; digests: vectors/README.md. Everything that lookups rely on is
 * checked when a file is read; one that is cut, changed or made up is refused with a reason.
 * Limits: 64-bit integers, little-endian machines.
 */
#ifndef FIBULA_H
#define FIBULA_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum fibula_design { FIBULA_OTHELLO, FIBULA_LINE };

/* A shard of an Othello, or a group of a line table. */
struct fibula_part {
	uint64_t tweak;          /* of a shard, spread over 64 bits */
	uint64_t words;          /* where its words begin */
	uint32_t n[3];           /* cells of both sides; or buckets of the three levels */
	uint32_t stash, n_stash;
};

struct fibula_hash {
	uint64_t a[2], c[2], addend[17]; /* muladd */
	uint64_t s[4];                   /* wy, and longer names of muladd */
	uint64_t k[2];                   /* siphash13 */
	uint64_t crc[8], last;           /* crc32c */
};

struct fibula_fib {
	enum fibula_design design;
	uint8_t family, kind, name_bytes;
	uint8_t value_bits, fingerprint_bits, cell_bits;
	uint8_t parts_of_name;   /* line: cells a name */
	uint16_t starts[5];      /* line: the first slot of each part of a bucket, and the end of the last */
	uint8_t depth;           /* bits of a digest that the directory looks at */
	uint8_t has_stash;       /* whether some part has one */
	uint32_t cells_a_word;
	uint64_t per_word;       /* 2^37 / cells_a_word, rounded up: divides numbers below 2^31 */
	uint64_t n_names;
	struct fibula_hash hash;
	uint32_t *directory;
	struct fibula_part *parts;
	uint64_t *words, *stashes; /* stashes: digest, value */
	struct fibula_action *actions;
	uint32_t n_actions;
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

static inline const struct fibula_part *fibula_part_(const struct fibula_fib *fib, uint64_t digest)
{
	return &fib->parts[fib->directory[fib->depth ? digest >> (64 - fib->depth) : 0]];
}

/* The value of a digest in the stash of a part: 0 if it is not there. */
static inline uint64_t fibula_stashed_(const struct fibula_fib *fib, const struct fibula_part *part, uint64_t digest,
	int *is_there)
{
	for (uint32_t i = part->stash; i < part->stash + part->n_stash; i++)
		if (fib->stashes[2 * i] == digest) {
			*is_there = 1;
			return fib->stashes[2 * i + 1];
		}
	return 0;
}

/* The digests of up to FIBULA_BURST names: see fibula_lookup_burst. */
static inline void fibula_digests_(const struct fibula_fib *fib, const uint8_t *names, size_t len, size_t stride,
	size_t n, uint64_t *digests)
{
	const struct fibula_hash *h = &fib->hash;
	if (fib->family == 1 && len <= 8) {
		uint64_t addend = h->addend[len];
		for (size_t i = 0; i < n; i++) {
			uint64_t word = fibula_word_(names + i * stride, len);
			digests[i] = fibula_mix_(fibula_high_(h->a[0], word) + h->a[1] * word + addend);
		}
		return;
	}
	for (size_t i = 0; i < n; i++)
		digests[i] = fibula_digest(fib, names + i * stride, len);
}

/* Where a cell is: its word, and its first bit there. */
struct fibula_spot_ {
	const uint64_t *word;
	uint64_t bit;
};

static inline struct fibula_spot_ fibula_spot_(const struct fibula_fib *fib, const struct fibula_part *part, uint64_t cell)
{
	uint64_t word = cell * fib->per_word >> 37;
	struct fibula_spot_ spot = {fib->words + part->words + word, (cell - word * fib->cells_a_word) * fib->cell_bits};
	return spot;
}

/* The two cells of a digest. */
struct fibula_spots_ {
	struct fibula_spot_ a, b;
};

static inline struct fibula_spots_ fibula_spots_(const struct fibula_fib *fib, const struct fibula_part *part,
	uint64_t digest)
{
	uint64_t x = (digest ^ part->tweak) * FIBULA_STEP;
	x ^= x >> 32;
	struct fibula_spots_ spots = {fibula_spot_(fib, part, (x >> 32) * part->n[0] >> 32),
		fibula_spot_(fib, part, part->n[0] + ((x & 0xFFFFFFFF) * part->n[1] >> 32))};
	return spots;
}

/* The value of a digest whose cells are known, unless the stash of its part has it. */
static inline uint64_t fibula_othello_(const struct fibula_fib *fib, uint64_t digest, struct fibula_spots_ spots)
{
	uint64_t cell = ~0ull >> (64 - fib->cell_bits);
	uint64_t a = *spots.a.word >> spots.a.bit & cell, b = *spots.b.word >> spots.b.bit & cell;
	uint64_t value = (a ^ b) & (~0ull >> (64 - fib->value_bits));
	if (fib->fingerprint_bits) {
		/* The fingerprint is above the value, and above that the indicator. */
		uint64_t mask = ~0ull >> (65 - fib->cell_bits) & ~(~0ull >> (64 - fib->value_bits));
		uint64_t f = (digest ^ digest >> 32) * 0x243F6A8885A308D3ull >> (65 - fib->cell_bits) & mask;
		int is_used = (int)((a & b) >> (fib->cell_bits - 1));
		return is_used && ((a ^ b) & mask) == f ? value : 0;
	}
	return value;
}

/* Words of a bucket of a line table. */
static inline uint32_t fibula_bucket_words_(const struct fibula_fib *fib) { return fib->value_bits <= 8 ? 8 : 16; }

static inline uint64_t fibula_line_(const struct fibula_fib *fib, const struct fibula_part *part, uint64_t digest)
{
	const uint64_t buckets[3] = {(digest >> 8 & 0xFFFFFFFF) * part->n[0] >> 32,
		part->n[0] + ((digest >> 8 & 0xFFFF) * part->n[1] >> 16), (uint64_t)part->n[0] + part->n[1]};
	const uint8_t ranks[3] = {(uint8_t)digest, (uint8_t)(digest >> 24), (uint8_t)(digest >> 16)};
	uint32_t n_words = fibula_bucket_words_(fib);
	int is_there = 0;
	for (int level = 0; level < 3; level++) {
		if (!part->n[level])
			continue;
		uint64_t at = part->words + buckets[level] * n_words, head = fib->words[at];
		if ((uint64_t)(ranks[level] - (ranks[level] >> 7)) >= (head >> 8 & 0xFF))
			continue;
		uint64_t x = (digest ^ (head & 0xFF) * 0x9E3779B1ull) * FIBULA_STEP, value = 0;
		x ^= x >> 32;
		for (uint32_t j = 0; j < fib->parts_of_name; j++) {
			uint64_t start = fib->starts[j], slot = start + ((x >> 16 * j & 0xFFFF) * (fib->starts[j + 1] - start) >> 16);
			uint64_t word = slot * fib->per_word >> 37, in_word = slot - word * fib->cells_a_word;
			value ^= fib->words[at + word] >> in_word * fib->value_bits;
		}
		return value & (~0ull >> (64 - fib->value_bits));
	}
	return fibula_stashed_(fib, part, digest, &is_there);
}

/* The value of a digest: a number for fibula_action. */
static inline uint16_t fibula_lookup_digest(const struct fibula_fib *fib, uint64_t digest)
{
	const struct fibula_part *part = fibula_part_(fib, digest);
	int is_stashed = 0;
	if (fib->design == FIBULA_LINE)
		return (uint16_t)fibula_line_(fib, part, digest);
	uint64_t stashed = part->n_stash ? fibula_stashed_(fib, part, digest, &is_stashed) : 0;
	return (uint16_t)(is_stashed ? stashed : fibula_othello_(fib, digest, fibula_spots_(fib, part, digest)));
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

/* The values of up to FIBULA_BURST names of `len` bytes each, which lie `stride` bytes apart. */
static inline void fibula_lookup_burst(const struct fibula_fib *fib, const void *names, size_t len, size_t stride,
	size_t n, uint16_t *values)
{
	uint64_t digests[FIBULA_BURST];
	struct fibula_spots_ spots[FIBULA_BURST];
	n = n < FIBULA_BURST ? n : FIBULA_BURST;
	fibula_digests_(fib, (const uint8_t *)names, len, stride, n, digests);
	if (fib->design == FIBULA_LINE) {
		for (size_t i = 0; i < n; i++) {
			const struct fibula_part *part = fibula_part_(fib, digests[i]);
			uint64_t bucket = (digests[i] >> 8 & 0xFFFFFFFF) * part->n[0] >> 32;
			fibula_fetch_(fib->words + part->words + bucket * fibula_bucket_words_(fib));
		}
		for (size_t i = 0; i < n; i++)
			values[i] = (uint16_t)fibula_line_(fib, fibula_part_(fib, digests[i]), digests[i]);
		return;
	}
	/* The lines of one name come while those of the others are found. */
	for (size_t i = 0; i < n; i++) {
		spots[i] = fibula_spots_(fib, fibula_part_(fib, digests[i]), digests[i]);
		fibula_fetch_(spots[i].a.word);
		fibula_fetch_(spots[i].b.word);
	}
	for (size_t i = 0; i < n; i++)
		values[i] = (uint16_t)fibula_othello_(fib, digests[i], spots[i]);
	/* A stash is an exception: few parts have one. */
	for (size_t i = 0; fib->has_stash && i < n; i++)
		if (fibula_part_(fib, digests[i])->n_stash)
			values[i] = fibula_lookup_digest(fib, digests[i]);
}

/* What a value means; drop for one that has no action. */
static inline struct fibula_action fibula_action(const struct fibula_fib *fib, uint16_t value)
{
	return fib->actions[value < fib->n_actions ? value : 0];
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

/* The actions of a file. NULL, or a reason. */
static inline const char *fibula_actions_(struct fibula_fib *fib, struct fibula_reader_ *r)
{
	uint64_t n = fibula_uint_(r, 4);
	if (n == 0 || n > r->left || n > 1 << 16)
		return "the number of actions";
	fib->n_actions = (uint32_t)n;
	fib->actions = (struct fibula_action *)calloc(n, sizeof *fib->actions);
	if (!fib->actions)
		return "no memory for its actions";
	for (uint64_t i = 0; i < n; i++) {
		struct fibula_action *action = &fib->actions[i];
		uint64_t verb = fibula_uint_(r, 1);
		if (verb > FIBULA_PUNT)
			return "an action";
		action->verb = (enum fibula_verb)verb;
		if (verb == FIBULA_PORT)
			action->port = (uint16_t)fibula_uint_(r, 2);
		if (verb == FIBULA_TUNNEL) {
			action->node = (uint32_t)fibula_uint_(r, 4);
			uint64_t form = fibula_uint_(r, 1);
			if (form != 0 && form != 4 && form != 6)
				return "the address of a tunnel";
			action->address_bytes = form == 6 ? 16 : (uint8_t)form;
			memcpy(action->address, fibula_take_(r, action->address_bytes), action->address_bytes);
		}
	}
	return fib->actions[0].verb == FIBULA_DROP ? NULL : "action 0, which must be drop";
}

/* What all parts of a table need together. */
struct fibula_need_ {
	uint64_t words, stashed;
	uint8_t depth;
};

/* Reads all parts: what they need, and, once there is memory for that, what they hold. NULL, or what is wrong. */
static inline const char *fibula_parts_(struct fibula_fib *fib, struct fibula_reader_ r, uint64_t n_parts,
	struct fibula_need_ *need)
{
	uint64_t covered = 0, words = 0, stashed = 0;
	for (uint64_t i = 0; i < n_parts; i++) {
		struct fibula_part part;
		memset(&part, 0, sizeof part);
		uint64_t prefix = fibula_uint_(&r, 4), depth = fibula_uint_(&r, 1), n_words;
		part.n_stash = (uint32_t)fibula_uint_(&r, 1);
		if (depth > 24 || prefix >> depth || part.n_stash > 8)
			return "a part of the table";
		if (fib->design == FIBULA_LINE) {
			for (int level = 0; level < 3; level++)
				part.n[level] = (uint32_t)fibula_uint_(&r, 2);
			if (part.n[0] == 0 || part.n[1] > 16383 || part.n[2] > 1)
				return "the buckets of a group";
			n_words = ((uint64_t)part.n[0] + part.n[1] + part.n[2]) * fibula_bucket_words_(fib);
		} else {
			part.tweak = fibula_uint_(&r, 2) * 0x9E3779B1ull;
			for (int side = 0; side < 2; side++) {
				part.n[side] = (uint32_t)fibula_uint_(&r, 4);
				if (part.n[side] == 0 || part.n[side] > 1u << 30 || part.n[side] % fib->cells_a_word)
					return "the cells of a shard";
			}
			n_words = ((uint64_t)part.n[0] + part.n[1]) / fib->cells_a_word;
		}
		fibula_take_(&r, 16); /* version and digest */
		part.words = words;
		part.stash = (uint32_t)stashed;
		const uint8_t *stash = fibula_take_(&r, 16 * part.n_stash);
		if (r.failed || n_words > r.left / 8)
			return "a part that ends too early";
		const uint8_t *contents = fibula_take_(&r, 8 * n_words);
		if (fib->words) {
			memcpy(fib->words + words, contents, 8 * n_words);
			memcpy(fib->stashes + 2 * stashed, stash, 16 * part.n_stash);
			fib->parts[i] = part;
			uint64_t from = prefix << (fib->depth - depth), n = 1ull << (fib->depth - depth);
			for (uint64_t at = from; at < from + n; at++) {
				if (fib->directory[at] != UINT32_MAX)
					return "two parts for one prefix";
				fib->directory[at] = (uint32_t)i;
			}
		}
		words += n_words;
		stashed += part.n_stash;
		covered += 1ull << (24 - depth);
		need->depth = depth > need->depth ? (uint8_t)depth : need->depth;
	}
	need->words = words;
	need->stashed = stashed;
	if (r.left)
		return "bytes behind the table";
	return covered == 1ull << 24 ? NULL : "prefixes that no part has";
}

static inline const char *fibula_table_(struct fibula_fib *fib, struct fibula_reader_ r)
{
	uint64_t form = fibula_uint_(&r, 1), n_parts = fibula_uint_(&r, 4);
	if (form != (fib->design == FIBULA_LINE ? 1 : 2) || n_parts == 0 || n_parts > r.left / 28)
		return "the table";
	struct fibula_need_ need = {0, 0, 0};
	const char *wrong = fibula_parts_(fib, r, n_parts, &need);
	if (wrong)
		return wrong;
	fib->depth = need.depth;
	fib->has_stash = need.stashed > 0;
	size_t n_entries = (size_t)1 << need.depth, bytes = (8 * need.words + 63) / 64 * 64;
	fib->directory = (uint32_t *)malloc(n_entries * sizeof *fib->directory);
	fib->parts = (struct fibula_part *)calloc(n_parts, sizeof *fib->parts);
	fib->stashes = (uint64_t *)calloc(need.stashed + 1, 16);
	/* Buckets are lines of the cache. */
	fib->words = (uint64_t *)aligned_alloc(64, bytes);
	if (!fib->directory || !fib->parts || !fib->stashes || !fib->words)
		return "no memory for its table";
	memset(fib->directory, 0xFF, n_entries * sizeof *fib->directory);
	return fibula_parts_(fib, r, n_parts, &need);
}

static inline void fibula_free(struct fibula_fib *fib)
{
	if (!fib)
		return;
	free(fib->directory); free(fib->parts); free(fib->stashes); free(fib->words); free(fib->actions);
	free(fib);
}

/* The table in the bytes of a file, which are not needed afterwards. NULL, and why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_load(const void *bytes, size_t len, char why[FIBULA_WHY])
{
	static const char *const designs[5] = {"concise", "ofw", "line", "line-fast", "line-small"};
	const char *wrong = NULL;
	char unknown[32] = "";
	struct fibula_reader_ r = {(const uint8_t *)bytes, len, 0};
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
	fib->cell_bits = (uint8_t)(fib->value_bits + fib->fingerprint_bits);
	if (fib->family < 1 || fib->family > 4 || fib->value_bits < 1 || fib->value_bits > 16 || fib->cell_bits > 64 ||
		fib->fingerprint_bits > 48 || (design != 1 && fib->fingerprint_bits)) {
		wrong = "its hash family, or the bits of its values";
		goto refused;
	}
	fib->cells_a_word = 64u / fib->cell_bits;
	fib->per_word = (1ull << 37) / fib->cells_a_word + 1;
	if (fib->design == FIBULA_LINE) {
		/* The header takes the first slots of a bucket. */
		uint32_t first = (16 + fib->value_bits - 1u) / fib->value_bits;
		uint32_t n_cells = fibula_bucket_words_(fib) * fib->cells_a_word - first;
		for (uint32_t j = 0; j <= fib->parts_of_name; j++)
			fib->starts[j] = (uint16_t)(first + n_cells * j / fib->parts_of_name);
	}
	wrong = fibula_actions_(fib, &r);
	if (wrong)
		goto refused;
	{
		uint64_t table = fibula_uint_(&r, 4);
		if (r.failed || table != r.left)
			wrong = "the length of its table";
		else
			wrong = fibula_table_(fib, r);
	}
	if (!wrong)
		return fib;
refused:
	fibula_free(fib);
	if (why)
		snprintf(why, FIBULA_WHY, "this FIB file cannot be used: %s%s%s; build it again", wrong, unknown[0] ? " " : "",
			unknown);
	return NULL;
}

/* The table of a file. NULL, and why not; `why` may be NULL. */
static inline struct fibula_fib *fibula_open(const char *path, char why[FIBULA_WHY])
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes = NULL;
	struct fibula_fib *fib = NULL;
	long len = -1;
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
