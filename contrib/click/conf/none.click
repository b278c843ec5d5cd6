// The same without a lookup: the port is of the last byte of the name, and FIB is not read.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/none.click FIB=none NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaNone;
require(library forward.click);
