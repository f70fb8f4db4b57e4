// Yang et al., Fig. 7, 'code extraction': picks this replica's tag out of the vector while the
// packet's beats go by. A tag may lie across two beats. The tag is complete one cycle after the
// beat with its last byte.
module tag_extract (
    input  logic                          clock,
    input  logic                          beat,    // one is taken now
    input  logic [5:0]                    number,  // which of its packet
    input  logic [nic_pkg::BEAT_BITS-1:0] data,
    input  logic [7:0]                    place,   // of this replica; below 128
    output logic [nic_pkg::TAG_BITS-1:0]  tag
);
    // Where each byte of the tag stands: its beat, and its lane within the beat.
    logic [11:0] at[16];
    always_comb
        for (int i = 0; i < 16; i++)
            at[i] = 12'(nic_pkg::VECTOR_AT + i) + {place, 4'd0};

    always_ff @(posedge clock)
        for (int i = 0; i < 16; i++)
            if (beat && number == at[i][11:6]) tag[8*i +: 8] <= data[{at[i][5:0], 3'd0} +: 8];
endmodule
