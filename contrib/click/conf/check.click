// Writes what leaves by each of 16 ports to OUT/I.pcap, and what leaves by none to OUT/rest.pcap. contrib/click/test reads
// them. Run it with the definition of Switch before it, as contrib/click/test does.
define($FRAMES 100000, $OFFSET 0);
source :: FibulaSource("$NAMES", LIMIT $FRAMES, OFFSET $OFFSET);
switch :: Switch("$FIB", OFFSET $OFFSET, REST true);
source -> switch;
switch[0] -> ToDump("$OUT/0.pcap");
switch[1] -> ToDump("$OUT/1.pcap");
switch[2] -> ToDump("$OUT/2.pcap");
switch[3] -> ToDump("$OUT/3.pcap");
switch[4] -> ToDump("$OUT/4.pcap");
switch[5] -> ToDump("$OUT/5.pcap");
switch[6] -> ToDump("$OUT/6.pcap");
switch[7] -> ToDump("$OUT/7.pcap");
switch[8] -> ToDump("$OUT/8.pcap");
switch[9] -> ToDump("$OUT/9.pcap");
switch[10] -> ToDump("$OUT/10.pcap");
switch[11] -> ToDump("$OUT/11.pcap");
switch[12] -> ToDump("$OUT/12.pcap");
switch[13] -> ToDump("$OUT/13.pcap");
switch[14] -> ToDump("$OUT/14.pcap");
switch[15] -> ToDump("$OUT/15.pcap");
switch[16] -> ToDump("$OUT/rest.pcap");
