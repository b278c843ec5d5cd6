// Concise: an Othello, design concise.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/concise.click FIB=concise.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaConcise;
require(library forward.click);
