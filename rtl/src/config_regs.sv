// Settings and commands of the host, as writes of 32-bit words. What must change together is staged
// and takes effect by one last write.
//
//   0x00  direct index (bit 0)       0x04, 0x05  low watermark, staged
//   0x01  IPv4 address               0x06, 0x07  high watermark, staged
//   0x02  UDP port                   0x08  take both watermarks
//   0x03  n << 8 | place             0x09  kinds
//   0x0a  seed of Murmur3            0x0b, 0x0c  base of the table
//   0x10..0x17  inner midstate, staged, A first;  0x18..0x1f  outer
//   0x20  take the midstates: valid << 16 | sender
//   0x21  free slots: mask << 28 | bucket
//   0x3f  defences that are taken out (only with TERCIO_ZOO, for tests)
//
// Interface: a write is done in the cycle in which `ready` stands, which is every cycle but those
// in which freed slots wait for the memory.
module config_regs (
    input  logic                      clock,
    input  logic                      reset,
    input  logic                      valid,
    output logic                      ready,
    input  logic [5:0]                address,
    input  logic [31:0]               data,
    output nic_pkg::settings_t        settings,
    output nic_pkg::without_t         without,
    output logic                      key_write,
    output logic [15:0]               key_sender,
    output logic                      key_valid,
    output logic [511:0]              key_midstates,
    output logic                      free,
    input  logic                      free_granted,
    output logic [31:0]               free_bucket,
    output logic [nic_pkg::SLOTS-1:0] free_slots
);
    logic [127:0] staged;  // watermarks

    assign ready = !free || free_granted;
    wire write = valid && ready;

    assign key_write = write && address == 6'h20;
    assign key_sender = data[15:0];
    assign key_valid = data[16];
    assign free = valid && address == 6'h21;
    assign free_bucket = {4'd0, data[27:0]};
    assign free_slots = data[31:28];

    always_ff @(posedge clock)
        if (reset) begin
            settings <= '0;
            staged <= '0;
        end else if (write)
            case (address)
                6'h00: settings.direct <= data[0];
                6'h01: settings.address <= data;
                6'h02: settings.port <= data[15:0];
                6'h03: {settings.members, settings.place} <= data[15:0];
                6'h04: staged[31:0] <= data;
                6'h05: staged[63:32] <= data;
                6'h06: staged[95:64] <= data;
                6'h07: staged[127:96] <= data;
                6'h08: {settings.high, settings.low} <= staged;
                6'h09: settings.kinds <= data;
                6'h0a: settings.seed <= data;
                6'h0b: settings.table_base[31:0] <= data;
                6'h0c: settings.table_base[63:32] <= data;
                default: ;
            endcase

    // Words shift in from the right: the first that was written, A of the inner midstate, ends in
    // front.
    always_ff @(posedge clock)
        if (write && address[5:4] == 2'b01) key_midstates <= {key_midstates[479:0], data};

`ifdef TERCIO_ZOO
    always_ff @(posedge clock)
        if (reset) without <= '0;
        else if (write && address == 6'h3f) without <= data[10:0];
`else
    assign without = '0;
`endif
endmodule
