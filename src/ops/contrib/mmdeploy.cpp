// Detection: the operators that mmdeploy and mmcv export beyond the standard, and the plugins of TensorRT for the same.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_mmdeploy_ops(Registry& r) {
  for (const char* domain : {"mmdeploy", "mmcv"}) {
    r.op(domain, "MMCVDeformConv2d").since(1, script("mmcv_deform_conv", {kw("mask", none), kw("bias", none)}));
    r.op(domain, "MMCVInstanceNormalization").since(1, *r.find("", "InstanceNormalization", 1));
    r.op(domain, "MMCVModulatedDeformConv2d").since(1, script("mmcv_deform_conv"));
    r.op(domain, "MMCVMultiLevelRoiAlign").since(1, script("mmcv_multi_level_roi_align"));
    r.op(domain, "MMCVRoIAlign").since(1, script("mmcv_roi_align"));  // as the documents name it
    r.op(domain, "MMCVRoiAlign").since(1, script("mmcv_roi_align"));  // as the exporters do
    r.op(domain, "NonMaxSuppression").since(1, script("mmcv_nms"));
    r.op(domain, "TRTBatchedNMS").since(1, script("trt_batched_nms"));
    r.op(domain, "grid_sampler").since(1, script("mmcv_grid_sampler"));
  }
  for (const char* domain : {"", "trt", "TRT"}) {
    for (const char* op : {"BatchedNMS_TRT", "BatchedNMSDynamic_TRT"}) {
      r.op(domain, op).since(1, script("batched_nms_plugin"));
    }
  }
}

}  // namespace onnxtorch
