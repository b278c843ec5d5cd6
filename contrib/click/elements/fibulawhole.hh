#ifndef CLICK_FIBULAWHOLE_HH
#define CLICK_FIBULAWHOLE_HH
#include "fibulaforward.hh"
#include "fibulareader.hh"
CLICK_DECLS

/* An element over a structure of fibulareader.hh. */
template <class Table> class FibulaReads : public FibulaForward {
protected:
	virtual const char *design() const = 0;
	int open(const String &file, ErrorHandler *) CLICK_COLD;
	int port_of(const uint8_t *name) const
	{
		/* The bits of a value may hold more than the widths say, in a file that is made up. */
		return _ports[_table.look_up(_file, name) & (_ports.size() - 1)];
	}
private:
	fibula::File _file;
	Table _table;
	std::vector<int> _ports;
};

/* FibulaCuckoo(FILE [, OFFSET, REST]): (2,4)-Cuckoo with whole names, design cuckoo. Unknown names are dropped. */
class FibulaCuckoo : public FibulaReads<fibula::Cuckoo> { public:
	const char *class_name() const { return "FibulaCuckoo"; }
protected:
	const char *design() const { return "cuckoo"; }
};

/* FibulaOrthogonalBloom(FILE [, OFFSET, REST]): a Bloom filter a bit of the action, design obf. Unknown names are mostly
 * dropped. */
class FibulaOrthogonalBloom : public FibulaReads<fibula::Orthogonal> { public:
	const char *class_name() const { return "FibulaOrthogonalBloom"; }
protected:
	const char *design() const { return "obf"; }
};

/* FibulaBinarySearch(FILE [, OFFSET, REST]): whole names in order, design sorted. Unknown names are dropped. */
class FibulaBinarySearch : public FibulaReads<fibula::Search> { public:
	const char *class_name() const { return "FibulaBinarySearch"; }
protected:
	const char *design() const { return "sorted"; }
};

/* FibulaNone(PORTS [, OFFSET, REST]): what the others cost without a lookup. Takes the port from the last byte of a name of
 * 6 bytes: one of PORTS, a power of two up to 256. */
class FibulaNone : public FibulaForward { public:
	const char *class_name() const { return "FibulaNone"; }
protected:
	int open(const String &, ErrorHandler *) CLICK_COLD;
	int port_of(const uint8_t *name) const { return name[5] & _mask; }
private:
	uint8_t _mask;
};

CLICK_ENDDECLS
#endif
