#include "server/fuser/cost_model.h"

namespace fuseline::fuser {

CostModel CostModelFor(const Target& target) {
  if (target.is_cuda()) return {};
  // A few cores: 20 GB/s and some 10 G simple operations a second; a step of a plan is a function call and a wake-up.
  CostModel cpu;
  cpu.bytes_per_micro = 20e3;
  cpu.ops_per_micro = 10e3;
  cpu.launch_micros = 2;
  cpu.rows_wanted = 32;
  cpu.split_reduced_extent = 65536;
  return cpu;
}

int64_t BodyCost(const lowering::LoopNode& node) {
  int64_t cost = 0;
  for (const ScalarInstr& instr : node.body) {
    switch (instr.op) {
      case ScalarOp::kInput:
      case ScalarOp::kConst:
        break;
      case ScalarOp::kQuotient:
      case ScalarOp::kCheckIndex:
        cost += 2;
        break;
      case ScalarOp::kPhilox:
        cost += 64;
        break;
      case ScalarOp::kDiv:
      case ScalarOp::kSqrt:
      case ScalarOp::kRsqrt:
      case ScalarOp::kFloorDiv:
      case ScalarOp::kTruncDiv:
      case ScalarOp::kRemainder:
      case ScalarOp::kFmod:
        cost += 8;
        break;
      case ScalarOp::kExp:
      case ScalarOp::kExp2:
      case ScalarOp::kExpm1:
      case ScalarOp::kLog:
      case ScalarOp::kLog2:
      case ScalarOp::kLog10:
      case ScalarOp::kLog1p:
      case ScalarOp::kSin:
      case ScalarOp::kCos:
      case ScalarOp::kTan:
      case ScalarOp::kAsin:
      case ScalarOp::kAcos:
      case ScalarOp::kAtan:
      case ScalarOp::kSinh:
      case ScalarOp::kCosh:
      case ScalarOp::kTanh:
      case ScalarOp::kAsinh:
      case ScalarOp::kAcosh:
      case ScalarOp::kAtanh:
      case ScalarOp::kErf:
      case ScalarOp::kErfc:
      case ScalarOp::kAtan2:
      case ScalarOp::kHypot:
        cost += 16;
        break;
      case ScalarOp::kPow:
      case ScalarOp::kLgamma:
        cost += 48;
        break;
      default:
        cost += 1;
    }
  }
  return cost;
}

}  // namespace fuseline::fuser
