#include <click/config.h>
#include "fibulawhole.hh"
#include <click/args.hh>
#include <click/error.hh>
CLICK_DECLS

template <class Table> int FibulaReads<Table>::open(const String &file, ErrorHandler *errh)
{
	std::string why;
	String path = file;
	if (!_file.open(path.c_str(), design(), why))
		return errh->error("%s", why.c_str());
	if (const char *wrong = _table.read(_file))
		return errh->error("%s cannot be used: %s; build it again", path.c_str(), wrong);
	_ports = _file.ports();
	_name_bytes = _file.name_bytes();
	_file.forget();
	return 0;
}

int FibulaNone::open(const String &ports, ErrorHandler *errh)
{
	uint32_t n;
	if (!IntArg().parse(ports, n) || n < 1 || n > 256 || (n & (n - 1)))
		return errh->error("PORTS is %s: give a power of two up to 256", ports.c_str());
	_name_bytes = 6;
	_mask = n - 1;
	return 0;
}

template class FibulaReads<fibula::Cuckoo>;
template class FibulaReads<fibula::Orthogonal>;
template class FibulaReads<fibula::Search>;

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel FibulaForward)
EXPORT_ELEMENT(FibulaCuckoo FibulaOrthogonalBloom FibulaBinarySearch FibulaNone)
