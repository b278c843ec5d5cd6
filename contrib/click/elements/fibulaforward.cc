#include <click/config.h>
#include "fibulaforward.hh"
#include <click/args.hh>
#include <click/error.hh>
CLICK_DECLS

FibulaForward::FibulaForward() : _name_bytes(0), _count(0), _drops(0), _offset(0), _n_ports(0), _rest(false) {}

int FibulaForward::configure(Vector<String> &conf, ErrorHandler *errh)
{
	String file;
	if (Args(conf, this, errh).read_mp("FILE", FilenameArg(), file).read("OFFSET", _offset).read("REST", _rest).complete() < 0)
		return -1;
	if (_offset > 65535)
		return errh->error("OFFSET %u is behind the end of every packet: give one below 65536", _offset);
	if (_rest && noutputs() < 2)
		return errh->error("REST takes the last of at least two outputs: connect one for a port, too");
	_n_ports = noutputs() - _rest;
	return open(file, errh);
}

void FibulaForward::push(int, Packet *p)
{
	_count++;
	if (likely(p->length() >= _offset + _name_bytes)) {
		int port = port_of(p->data() + _offset);
		if (likely((uint32_t)port < _n_ports)) {
			output(port).push(p);
			return;
		}
	}
	_drops++;
	if (_rest)
		output(_n_ports).push(p);
	else
		p->kill();
}

String FibulaForward::read_handler(Element *e, void *drops)
{
	FibulaForward *f = static_cast<FibulaForward *>(e);
	return String(drops ? f->_drops : f->_count);
}

int FibulaForward::write_handler(const String &, Element *e, void *, ErrorHandler *)
{
	FibulaForward *f = static_cast<FibulaForward *>(e);
	f->_count = f->_drops = 0;
	return 0;
}

void FibulaForward::add_handlers()
{
	add_read_handler("count", read_handler, 0);
	add_read_handler("drops", read_handler, 1);
	add_write_handler("reset", write_handler, 0, Handler::BUTTON);
}

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel)
ELEMENT_PROVIDES(FibulaForward)
