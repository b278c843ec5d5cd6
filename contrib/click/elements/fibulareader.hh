// Reads FIB files of the designs that fibula.h does not read: cuckoo, obf and sorted.
//
// Scalar loops for one name at a time, as an element of Click looks names up. The checks are those that lookups rely on:
// whatever the bytes of a file are, a lookup stays inside its table.
// Formats: docs/formats/fib-file.md, cuckoo.md, static-maps.md, bloom-filter.md. The checksums inside a table are not
// computed: the fingerprint of the file covers their bytes.
// Limits: names of one length, of up to 8 bytes: MAC and IPv4 addresses, tunnel ids, fixed fields.
#ifndef FIBULA_READER_HH
#define FIBULA_READER_HH
#include "fibula.h"
#include <string>
#include <vector>

namespace fibula {

// Words in lines of the cache: the formats put what is read together into one line.
class Words { public:
	Words() : _words(0) {}
	~Words() { free(_words); }
	// Takes `n` words from a file. False if it has fewer, or there is no memory.
	bool take(fibula_reader_ &r, uint64_t n)
	{
		if (r.failed || n > r.left / 8)
			return false;
		free(_words);
		_words = static_cast<uint64_t *>(aligned_alloc(64, (8 * n + 64) / 64 * 64));
		if (!_words)
			return false;
		memcpy(_words, fibula_take_(&r, 8 * n), 8 * n);
		return true;
	}
	uint64_t operator[](uint64_t i) const { return _words[i]; }
	const uint64_t *at(uint64_t i) const { return _words + i; }
private:
	Words(const Words &);
	Words &operator=(const Words &);
	uint64_t *_words;
};

// A file: how its names are hashed, the ports of its actions, and the bytes of its table.
class File { public:
	// False, and why, if it cannot be used.
	bool open(const char *path, const char *design, std::string &why)
	{
		FILE *file = fopen(path, "rb");
		if (!file) {
			why = std::string("cannot read ") + path + ": " + strerror(errno) + "; make it by fibula fib build";
			return false;
		}
		uint8_t piece[1 << 16];
		size_t n;
		_bytes.clear();
		while ((n = fread(piece, 1, sizeof piece, file)) > 0)
			_bytes.insert(_bytes.end(), piece, piece + n);
		bool failed = ferror(file);
		fclose(file);
		const char *wrong = failed ? "it cannot be read to its end" : read(design);
		if (!wrong)
			return true;
		why = std::string(path) + " cannot be used: " + wrong;
		if (_design != design && !_design.empty())
			why += " " + _design + ", not " + design;
		why += std::string("; build it by fibula fib build --design ") + design;
		return false;
	}

	uint64_t digest(const uint8_t *name) const { return fibula_digest(&_spec, name, _spec.name_bytes); }
	uint64_t word(const uint8_t *name) const { return fibula_word_(name, _spec.name_bytes); }
	// A word derived from the hash key for structures.
	uint64_t derived(uint64_t index) const { return fibula_derive_(_key, 16, index); }
	uint32_t name_bytes() const { return _spec.name_bytes; }
	uint32_t value_bits() const { return _spec.value_bits; }
	// The port of each value, -1 of those that lead to none.
	const std::vector<int> &ports() const { return _ports; }
	fibula_reader_ &table() { return _table; }
	// Frees the bytes that were read.
	void forget() { std::vector<uint8_t>().swap(_bytes); }

private:
	const char *read(const char *design)
	{
		fibula_hash sum;
		_design.clear();
		if (_bytes.size() < 24 || memcmp(_bytes.data(), "FIBULAF2", 8))
			return "it does not begin like a FIB file of this version";
		size_t len = _bytes.size() - 8;
		fibula_hash_(&sum, 2, reinterpret_cast<const uint8_t *>("fibula southbound fingerprint 01"));
		if (fibula_wy_(sum.s, _bytes.data(), len) != fibula_word_(_bytes.data() + len, 8))
			return "it is damaged or cut";
		fibula_reader_ r = {_bytes.data() + 16, len - 16, 0};
		uint64_t n = fibula_uint_(&r, 4), n_actions;
		const uint8_t *name = n <= 64 ? fibula_take_(&r, n) : 0;
		if (!name)
			return "the name of its design";
		_design.assign(reinterpret_cast<const char *>(name), n);
		if (_design != design)
			return "its design is";
		memset(&_spec, 0, sizeof _spec);
		uint8_t kind = fibula_uint_(&r, 1), width = fibula_uint_(&r, 1);
		_spec.name_bytes = fibula_name_bytes_(kind, width);
		if (_spec.name_bytes < 1 || _spec.name_bytes > 8)
			return "its names are not all of one length of up to 8 bytes";
		_spec.family = fibula_uint_(&r, 1);
		memcpy(_key, fibula_take_(&r, 32), 32);
		fibula_hash_(&_spec.hash, _spec.family, _key);
		_spec.value_bits = fibula_uint_(&r, 1);
		fibula_take_(&r, 9); // bits of a fingerprint, most names
		if (_spec.family < 1 || _spec.family > 4 || _spec.value_bits < 1 || _spec.value_bits > 16)
			return "its hash family, or the bits of its values";
		fibula_reader_ actions = r;
		const char *wrong = fibula_actions_(&r, &n_actions, 0);
		if (wrong)
			return wrong;
		std::vector<uint8_t> records(24 * n_actions);
		fibula_actions_(&actions, &n_actions, records.data());
		_ports.assign(size_t(1) << _spec.value_bits, -1);
		for (size_t i = 0; i < n_actions && i < _ports.size(); i++)
			if (records[24 * i] == FIBULA_PORT)
				_ports[i] = records[24 * i + 2] | records[24 * i + 3] << 8;
		if (fibula_uint_(&r, 4) != r.left || r.failed)
			return "the length of its table";
		_table = r;
		return 0;
	}

	std::vector<uint8_t> _bytes;
	std::vector<int> _ports;
	std::string _design;
	fibula_fib _spec; // of which only the hash and the widths are used
	uint8_t _key[32];
	fibula_reader_ _table;
};

// (2,4)-Cuckoo with whole names.
class Cuckoo { public:
	const char *read(File &file)
	{
		fibula_reader_ &r = file.table();
		uint32_t name_bits = 8 * file.name_bytes();
		if (fibula_uint_(&r, 1) != 1)
			return "its table is not a complete one";
		fibula_take_(&r, 16); // version and digest
		_tweak = fibula_uint_(&r, 8);
		_n_buckets = fibula_uint_(&r, 4);
		_together = name_bits + file.value_bits() <= 64;
		_name_mask = ~uint64_t(0) >> (64 - name_bits);
		_shift = 64 - file.value_bits();
		uint64_t n_words = 4 * _n_buckets * (_together ? 1 : 2);
		if (!_n_buckets || n_words != r.left / 8 || r.left % 8 || !_words.take(r, n_words))
			return "the slots of its table";
		return 0;
	}
	uint32_t look_up(const File &file, const uint8_t *name) const
	{
		uint64_t word = file.word(name), x = fibula_mix_(file.digest(name) ^ _tweak), found = 0;
		uint64_t buckets[2] = {(x >> 32) * _n_buckets >> 32, (x & 0xFFFFFFFF) * _n_buckets >> 32};
		const uint64_t *slots[2] = {_words.at(buckets[0] * (_together ? 4 : 8)), _words.at(buckets[1] * (_together ? 4 : 8))};
		// Both buckets come from memory at once.
		fibula_fetch_(slots[0]);
		fibula_fetch_(slots[1]);
		// Without branches, which would be mispredicted: at most one slot has the name, and an empty one has value 0.
		for (int side = 0; side < 2; side++)
			for (int i = 0; i < 4; i++) {
				uint64_t own = _together ? slots[side][i] : slots[side][2 * i];
				uint64_t value = _together ? own : slots[side][2 * i + 1];
				found |= ((own ^ word) & _name_mask) == 0 ? value : 0;
			}
		return uint32_t(found >> _shift);
	}
private:
	Words _words;
	uint64_t _tweak, _n_buckets, _name_mask;
	uint32_t _shift;
	bool _together;
};

// Binary search over names of one word, in Eytzinger's order.
class Sorted { public:
	// Reads the map; more may follow it.
	const char *read(fibula_reader_ &r, uint32_t value_bits)
	{
		_n_names = fibula_uint_(&r, 8);
		_log_bits = 0;
		while (1u << _log_bits < value_bits)
			_log_bits++;
		if (_n_names > r.left / 8 || !_names.take(r, _n_names + 1)
			|| !_values.take(r, (((_n_names + 1) << _log_bits) + 63) / 64))
			return "the names of its table";
		return 0;
	}
	// Whether the word is a name; then its value.
	bool find(uint64_t word, uint64_t &value) const
	{
		uint64_t node = 1;
		while (node <= _n_names) {
			// The node's descendants three levels down share this line.
			fibula_fetch_(_names.at(8 * node));
			node = 2 * node + (_names[node] < word);
		}
		// Back through the right turns and the left turn before them, to the first name that is not less.
		int up = __builtin_ctzll(~node) + 1;
		node >>= up;
		if (!node || _names[node] != word)
			return false;
		uint64_t bit = node << _log_bits;
		value = _values[bit / 64] >> bit % 64 & (~uint64_t(0) >> (64 - (1 << _log_bits)));
		return true;
	}
private:
	Words _names, _values;
	uint64_t _n_names;
	uint32_t _log_bits;
};

// Whole names in order; drop for others.
class Search { public:
	const char *read(File &file)
	{
		fibula_take_(&file.table(), 16); // version and digest
		const char *wrong = _map.read(file.table(), file.value_bits());
		return wrong ? wrong : file.table().left ? "bytes behind its table" : 0;
	}
	uint32_t look_up(const File &file, const uint8_t *name) const
	{
		uint64_t value = 0;
		return _map.find(file.word(name), value) ? uint32_t(value) : 0;
	}
private:
	Sorted _map;
};

// One standard Bloom filter a bit of the value, and the names that the filters get wrong.
class Orthogonal { public:
	const char *read(File &file)
	{
		fibula_reader_ &r = file.table();
		fibula_take_(&r, 24); // version, digest, names
		if (fibula_uint_(&r, 1) != 's')
			return "its filters are no standard ones";
		_n_filters = file.value_bits();
		for (uint32_t i = 0; i < _n_filters; i++) {
			Filter &filter = _filters[i];
			filter.bits = fibula_uint_(&r, 8);
			filter.n_positions = uint32_t(fibula_uint_(&r, 1));
			filter.seed = fibula_mix_(file.derived(0) + i);
			if (!filter.bits || filter.bits > 1ull << 40 || filter.n_positions < 1 || filter.n_positions > 32
				|| !filter.words.take(r, (filter.bits + 63) / 64))
				return "a filter of its table";
			// One mix of 64 bits serves as many draws as its bits suffice for, 10 of them spare.
			uint64_t largest = filter.bits - 1;
			uint32_t width = largest ? 64 - __builtin_clzll(largest) : 1;
			filter.a_mix = width > 54 ? 1 : 54 / width;
		}
		const char *wrong = _exact.read(r, file.value_bits());
		return wrong ? wrong : r.left ? "bytes behind its table" : 0;
	}
	uint32_t look_up(const File &file, const uint8_t *name) const
	{
		uint64_t digest = file.digest(name), value = 0;
		if (_exact.find(digest, value))
			return uint32_t(value);
		for (uint32_t i = 0; i < _n_filters; i++)
			value |= uint64_t(_filters[i].has(digest)) << i;
		return uint32_t(value);
	}
private:
	struct Filter {
		Words words;
		uint64_t bits, seed;
		uint32_t n_positions, a_mix;
		bool has(uint64_t digest) const
		{
			uint64_t state = fibula_mix_(digest ^ seed), word = 0;
			uint32_t left = 0;
			for (uint32_t i = 0; i < n_positions; i++) {
				if (!left) {
					word = fibula_mix_(state += FIBULA_STEP);
					left = a_mix;
				}
				left--;
				uint64_t bit = fibula_high_(word, bits);
				word *= bits;
				if (!(words[bit / 64] >> bit % 64 & 1))
					return false;
			}
			return true;
		}
	};
	Filter _filters[16];
	uint32_t _n_filters;
	Sorted _exact;
};

}
#endif
