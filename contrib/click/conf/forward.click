// The papers' configuration: a source of frames, a switch of 256 ports, and a counter at each of them. The file that
// requires this one says which element Switch is.
//
// FIB     the FIB file
// NAMES   the names of the frames: a line each, in hexadecimal, up to a comma
// FRAMES  how many frames are made; then the driver stops
// OFFSET  where a name is in a frame
define($FRAMES 10000000, $OFFSET 0);
elementclass Port { input -> c :: Counter -> Discard }
source :: FibulaSource("$NAMES", LIMIT $FRAMES, OFFSET $OFFSET);
switch :: Switch("$FIB", OFFSET $OFFSET);
source -> switch;
switch[0] -> p0 :: Port; switch[1] -> p1 :: Port; switch[2] -> p2 :: Port; switch[3] -> p3 :: Port;
switch[4] -> p4 :: Port; switch[5] -> p5 :: Port; switch[6] -> p6 :: Port; switch[7] -> p7 :: Port;
switch[8] -> p8 :: Port; switch[9] -> p9 :: Port; switch[10] -> p10 :: Port; switch[11] -> p11 :: Port;
switch[12] -> p12 :: Port; switch[13] -> p13 :: Port; switch[14] -> p14 :: Port; switch[15] -> p15 :: Port;
switch[16] -> p16 :: Port; switch[17] -> p17 :: Port; switch[18] -> p18 :: Port; switch[19] -> p19 :: Port;
switch[20] -> p20 :: Port; switch[21] -> p21 :: Port; switch[22] -> p22 :: Port; switch[23] -> p23 :: Port;
switch[24] -> p24 :: Port; switch[25] -> p25 :: Port; switch[26] -> p26 :: Port; switch[27] -> p27 :: Port;
switch[28] -> p28 :: Port; switch[29] -> p29 :: Port; switch[30] -> p30 :: Port; switch[31] -> p31 :: Port;
switch[32] -> p32 :: Port; switch[33] -> p33 :: Port; switch[34] -> p34 :: Port; switch[35] -> p35 :: Port;
switch[36] -> p36 :: Port; switch[37] -> p37 :: Port; switch[38] -> p38 :: Port; switch[39] -> p39 :: Port;
switch[40] -> p40 :: Port; switch[41] -> p41 :: Port; switch[42] -> p42 :: Port; switch[43] -> p43 :: Port;
switch[44] -> p44 :: Port; switch[45] -> p45 :: Port; switch[46] -> p46 :: Port; switch[47] -> p47 :: Port;
switch[48] -> p48 :: Port; switch[49] -> p49 :: Port; switch[50] -> p50 :: Port; switch[51] -> p51 :: Port;
switch[52] -> p52 :: Port; switch[53] -> p53 :: Port; switch[54] -> p54 :: Port; switch[55] -> p55 :: Port;
switch[56] -> p56 :: Port; switch[57] -> p57 :: Port; switch[58] -> p58 :: Port; switch[59] -> p59 :: Port;
switch[60] -> p60 :: Port; switch[61] -> p61 :: Port; switch[62] -> p62 :: Port; switch[63] -> p63 :: Port;
switch[64] -> p64 :: Port; switch[65] -> p65 :: Port; switch[66] -> p66 :: Port; switch[67] -> p67 :: Port;
switch[68] -> p68 :: Port; switch[69] -> p69 :: Port; switch[70] -> p70 :: Port; switch[71] -> p71 :: Port;
switch[72] -> p72 :: Port; switch[73] -> p73 :: Port; switch[74] -> p74 :: Port; switch[75] -> p75 :: Port;
switch[76] -> p76 :: Port; switch[77] -> p77 :: Port; switch[78] -> p78 :: Port; switch[79] -> p79 :: Port;
switch[80] -> p80 :: Port; switch[81] -> p81 :: Port; switch[82] -> p82 :: Port; switch[83] -> p83 :: Port;
switch[84] -> p84 :: Port; switch[85] -> p85 :: Port; switch[86] -> p86 :: Port; switch[87] -> p87 :: Port;
switch[88] -> p88 :: Port; switch[89] -> p89 :: Port; switch[90] -> p90 :: Port; switch[91] -> p91 :: Port;
switch[92] -> p92 :: Port; switch[93] -> p93 :: Port; switch[94] -> p94 :: Port; switch[95] -> p95 :: Port;
switch[96] -> p96 :: Port; switch[97] -> p97 :: Port; switch[98] -> p98 :: Port; switch[99] -> p99 :: Port;
switch[100] -> p100 :: Port; switch[101] -> p101 :: Port; switch[102] -> p102 :: Port; switch[103] -> p103 :: Port;
switch[104] -> p104 :: Port; switch[105] -> p105 :: Port; switch[106] -> p106 :: Port; switch[107] -> p107 :: Port;
switch[108] -> p108 :: Port; switch[109] -> p109 :: Port; switch[110] -> p110 :: Port; switch[111] -> p111 :: Port;
switch[112] -> p112 :: Port; switch[113] -> p113 :: Port; switch[114] -> p114 :: Port; switch[115] -> p115 :: Port;
switch[116] -> p116 :: Port; switch[117] -> p117 :: Port; switch[118] -> p118 :: Port; switch[119] -> p119 :: Port;
switch[120] -> p120 :: Port; switch[121] -> p121 :: Port; switch[122] -> p122 :: Port; switch[123] -> p123 :: Port;
switch[124] -> p124 :: Port; switch[125] -> p125 :: Port; switch[126] -> p126 :: Port; switch[127] -> p127 :: Port;
switch[128] -> p128 :: Port; switch[129] -> p129 :: Port; switch[130] -> p130 :: Port; switch[131] -> p131 :: Port;
switch[132] -> p132 :: Port; switch[133] -> p133 :: Port; switch[134] -> p134 :: Port; switch[135] -> p135 :: Port;
switch[136] -> p136 :: Port; switch[137] -> p137 :: Port; switch[138] -> p138 :: Port; switch[139] -> p139 :: Port;
switch[140] -> p140 :: Port; switch[141] -> p141 :: Port; switch[142] -> p142 :: Port; switch[143] -> p143 :: Port;
switch[144] -> p144 :: Port; switch[145] -> p145 :: Port; switch[146] -> p146 :: Port; switch[147] -> p147 :: Port;
switch[148] -> p148 :: Port; switch[149] -> p149 :: Port; switch[150] -> p150 :: Port; switch[151] -> p151 :: Port;
switch[152] -> p152 :: Port; switch[153] -> p153 :: Port; switch[154] -> p154 :: Port; switch[155] -> p155 :: Port;
switch[156] -> p156 :: Port; switch[157] -> p157 :: Port; switch[158] -> p158 :: Port; switch[159] -> p159 :: Port;
switch[160] -> p160 :: Port; switch[161] -> p161 :: Port; switch[162] -> p162 :: Port; switch[163] -> p163 :: Port;
switch[164] -> p164 :: Port; switch[165] -> p165 :: Port; switch[166] -> p166 :: Port; switch[167] -> p167 :: Port;
switch[168] -> p168 :: Port; switch[169] -> p169 :: Port; switch[170] -> p170 :: Port; switch[171] -> p171 :: Port;
switch[172] -> p172 :: Port; switch[173] -> p173 :: Port; switch[174] -> p174 :: Port; switch[175] -> p175 :: Port;
switch[176] -> p176 :: Port; switch[177] -> p177 :: Port; switch[178] -> p178 :: Port; switch[179] -> p179 :: Port;
switch[180] -> p180 :: Port; switch[181] -> p181 :: Port; switch[182] -> p182 :: Port; switch[183] -> p183 :: Port;
switch[184] -> p184 :: Port; switch[185] -> p185 :: Port; switch[186] -> p186 :: Port; switch[187] -> p187 :: Port;
switch[188] -> p188 :: Port; switch[189] -> p189 :: Port; switch[190] -> p190 :: Port; switch[191] -> p191 :: Port;
switch[192] -> p192 :: Port; switch[193] -> p193 :: Port; switch[194] -> p194 :: Port; switch[195] -> p195 :: Port;
switch[196] -> p196 :: Port; switch[197] -> p197 :: Port; switch[198] -> p198 :: Port; switch[199] -> p199 :: Port;
switch[200] -> p200 :: Port; switch[201] -> p201 :: Port; switch[202] -> p202 :: Port; switch[203] -> p203 :: Port;
switch[204] -> p204 :: Port; switch[205] -> p205 :: Port; switch[206] -> p206 :: Port; switch[207] -> p207 :: Port;
switch[208] -> p208 :: Port; switch[209] -> p209 :: Port; switch[210] -> p210 :: Port; switch[211] -> p211 :: Port;
switch[212] -> p212 :: Port; switch[213] -> p213 :: Port; switch[214] -> p214 :: Port; switch[215] -> p215 :: Port;
switch[216] -> p216 :: Port; switch[217] -> p217 :: Port; switch[218] -> p218 :: Port; switch[219] -> p219 :: Port;
switch[220] -> p220 :: Port; switch[221] -> p221 :: Port; switch[222] -> p222 :: Port; switch[223] -> p223 :: Port;
switch[224] -> p224 :: Port; switch[225] -> p225 :: Port; switch[226] -> p226 :: Port; switch[227] -> p227 :: Port;
switch[228] -> p228 :: Port; switch[229] -> p229 :: Port; switch[230] -> p230 :: Port; switch[231] -> p231 :: Port;
switch[232] -> p232 :: Port; switch[233] -> p233 :: Port; switch[234] -> p234 :: Port; switch[235] -> p235 :: Port;
switch[236] -> p236 :: Port; switch[237] -> p237 :: Port; switch[238] -> p238 :: Port; switch[239] -> p239 :: Port;
switch[240] -> p240 :: Port; switch[241] -> p241 :: Port; switch[242] -> p242 :: Port; switch[243] -> p243 :: Port;
switch[244] -> p244 :: Port; switch[245] -> p245 :: Port; switch[246] -> p246 :: Port; switch[247] -> p247 :: Port;
switch[248] -> p248 :: Port; switch[249] -> p249 :: Port; switch[250] -> p250 :: Port; switch[251] -> p251 :: Port;
switch[252] -> p252 :: Port; switch[253] -> p253 :: Port; switch[254] -> p254 :: Port; switch[255] -> p255 :: Port;
