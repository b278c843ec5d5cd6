#include <click/config.h>
#include "fibulasource.hh"
#include <click/args.hh>
#include <click/error.hh>
#include <click/router.hh>
#include <click/standard/scheduleinfo.hh>
#include <errno.h>
#include <stdio.h>
#include <string.h>
CLICK_DECLS

FibulaSource::FibulaSource() : _task(this), _name_bytes(0), _n_names(0), _next(0), _count(0) {}

int FibulaSource::configure(Vector<String> &conf, ErrorHandler *errh)
{
	String file;
	uint64_t seed = 1;
	_limit = -1;
	_burst = 32;
	_length = 64;
	_offset = 0;
	_stop = true;
	if (Args(conf, this, errh).read_mp("NAMES", FilenameArg(), file).read_p("LIMIT", _limit).read("SEED", seed)
		.read("BURST", _burst).read("LENGTH", _length).read("OFFSET", _offset).read("STOP", _stop).complete() < 0)
		return -1;
	if (_burst < 1)
		return errh->error("BURST 0 makes no frames: give at least 1");
	if (read_names(file, errh) < 0)
		return -1;
	if (_length > 9216 || _offset > _length || _length - _offset < _name_bytes)
		return errh->error("frames of LENGTH %u have no room for names of %u bytes from OFFSET %u on; the longest have 9216",
			_length, _name_bytes, _offset);
	shuffle(seed);
	return 0;
}

/* The bytes of a name in hexadecimal; 0 if it is none. */
static uint32_t name_of(const char *line, uint8_t name[64])
{
	uint32_t n_digits = 0;
	for (; *line && *line != ',' && *line != '\n' && *line != '\r'; line++) {
		int c = *line | 0x20, digit = *line >= '0' && *line <= '9' ? *line - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		if (*line == ':' && n_digits % 2 == 0)
			continue;
		if (digit < 0 || n_digits == 128)
			return 0;
		name[n_digits / 2] = n_digits % 2 ? name[n_digits / 2] << 4 | digit : digit;
		n_digits++;
	}
	return n_digits % 2 ? 0 : n_digits / 2;
}

int FibulaSource::read_names(const String &file, ErrorHandler *errh)
{
	String path = file;
	FILE *f = fopen(path.c_str(), "r");
	if (!f)
		return errh->error("cannot read the names %s: %s", path.c_str(), strerror(errno));
	char line[512];
	uint8_t name[64];
	_names.clear();
	_name_bytes = _n_names = 0;
	for (int number = 1; fgets(line, sizeof line, f); number++) {
		uint32_t n = name_of(line, name);
		if (!n || (_name_bytes && n != _name_bytes)) {
			fclose(f);
			return errh->error(n ? "%s: line %d has a name of another length than those before: give all one length"
				: "%s: line %d has no name: write its bytes in hexadecimal", path.c_str(), number);
		}
		_name_bytes = n;
		_n_names++;
		_names.insert(_names.end(), name, name + n);
	}
	fclose(f);
	return _n_names ? 0 : errh->error("%s has no names: write one a line, in hexadecimal", path.c_str());
}

/* Fisher and Yates, by numbers of xorshift64*: the same for a seed on every machine. */
void FibulaSource::shuffle(uint64_t seed)
{
	uint64_t state = seed * 0x9E3779B97F4A7C15ull | 1;
	uint8_t name[64];
	for (uint32_t left = _n_names; left > 1; left--) {
		state ^= state >> 12; state ^= state << 25; state ^= state >> 27;
		uint32_t other = (state * 0x2545F4914F6CDD1Dull >> 32) * left >> 32;
		uint8_t *a = &_names[(size_t)(left - 1) * _name_bytes], *b = &_names[(size_t)other * _name_bytes];
		memcpy(name, a, _name_bytes);
		memmove(a, b, _name_bytes);
		memcpy(b, name, _name_bytes);
	}
}

int FibulaSource::initialize(ErrorHandler *errh)
{
	ScheduleInfo::initialize_task(this, &_task, errh);
	return 0;
}

bool FibulaSource::run_task(Task *)
{
	if (!_count)
		_first = Timestamp::now_steady();
	uint32_t n = _burst;
	if (_limit >= 0 && _limit - (int64_t)_count < (int64_t)n)
		n = _limit - _count;
	for (uint32_t i = 0; i < n; i++) {
		WritablePacket *p = Packet::make(Packet::default_headroom, 0, _length, 0);
		if (!p)
			continue;
		memset(p->data(), 0, _length);
		memcpy(p->data() + _offset, &_names[(size_t)_next * _name_bytes], _name_bytes);
		_next = _next + 1 == _n_names ? 0 : _next + 1;
		_count++;
		output(0).push(p);
	}
	if (_limit < 0 || (int64_t)_count < _limit) {
		_task.fast_reschedule();
		return true;
	}
	_last = Timestamp::now_steady();
	if (_stop)
		router()->please_stop_driver();
	return n > 0;
}

double FibulaSource::seconds() const
{
	return _count ? ((_last ? _last : Timestamp::now_steady()) - _first).doubleval() : 0;
}

String FibulaSource::read_handler(Element *e, void *what)
{
	FibulaSource *source = static_cast<FibulaSource *>(e);
	double seconds = source->seconds();
	if (what == 0)
		return String(source->_count);
	return String(what == (void *)1 ? seconds : seconds > 0 ? source->_count / seconds : 0);
}

void FibulaSource::add_handlers()
{
	add_read_handler("count", read_handler, 0);
	add_read_handler("seconds", read_handler, 1);
	add_read_handler("rate", read_handler, 2);
	add_task_handlers(&_task);
}

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel)
EXPORT_ELEMENT(FibulaSource)
