// The papers' configuration: a source of frames, a switch of 16 ports, and a counter at each of them. The file that
// requires this one says which element Switch is.
//
// FIB     the FIB file
// NAMES   the names of the frames: a line each, in hexadecimal, up to a comma
// FRAMES  how many frames are made; then the driver stops
// OFFSET  where a name is in a frame
define($FRAMES 10000000, $OFFSET 0);
source :: FibulaSource("$NAMES", LIMIT $FRAMES, OFFSET $OFFSET);
switch :: Switch("$FIB", OFFSET $OFFSET);
source -> switch;
switch[0] -> c0 :: Counter -> Discard;
switch[1] -> c1 :: Counter -> Discard;
switch[2] -> c2 :: Counter -> Discard;
switch[3] -> c3 :: Counter -> Discard;
switch[4] -> c4 :: Counter -> Discard;
switch[5] -> c5 :: Counter -> Discard;
switch[6] -> c6 :: Counter -> Discard;
switch[7] -> c7 :: Counter -> Discard;
switch[8] -> c8 :: Counter -> Discard;
switch[9] -> c9 :: Counter -> Discard;
switch[10] -> c10 :: Counter -> Discard;
switch[11] -> c11 :: Counter -> Discard;
switch[12] -> c12 :: Counter -> Discard;
switch[13] -> c13 :: Counter -> Discard;
switch[14] -> c14 :: Counter -> Discard;
switch[15] -> c15 :: Counter -> Discard;
