/* Classifies a JPEG with a SavedModel through TensorFlow's C API, which is
   what TF Serving loads models with.

   serve MODEL IMAGE INPUT SCORES INDICES: the tensors' names in the graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/core/platform/ctstring.h"

static void check(TF_Status* status) {
  if (TF_GetCode(status) != TF_OK) {
    fprintf(stderr, "%s\n", TF_Message(status));
    exit(1);
  }
}

/* "name:0" of a graph. */
static TF_Output find(TF_Graph* graph, char* name) {
  char* colon = strchr(name, ':');
  TF_Output output;
  output.index = colon ? atoi(colon + 1) : 0;
  if (colon) *colon = 0;
  output.oper = TF_GraphOperationByName(graph, name);
  if (!output.oper) {
    fprintf(stderr, "no operation %s\n", name);
    exit(1);
  }
  return output;
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  FILE* file = fopen(argv[2], "rb");
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char* bytes = malloc(size);
  if (fread(bytes, 1, size, file) != (size_t)size) return 2;
  fclose(file);

  TF_Status* status = TF_NewStatus();
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(
      options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(status);

  int64_t shape[] = {1};
  TF_Tensor* image =
      TF_AllocateTensor(TF_STRING, shape, 1, sizeof(TF_TString));
  TF_TString* text = TF_TensorData(image);
  TF_TString_Init(text);
  TF_TString_Copy(text, bytes, size);

  TF_Output input = find(graph, argv[3]);
  TF_Output wanted[] = {find(graph, argv[4]), find(graph, argv[5])};
  TF_Tensor* found[2] = {NULL, NULL};
  TF_SessionRun(session, NULL, &input, &image, 1, wanted, found, 2, NULL, 0,
                NULL, status);
  check(status);
  float* scores = TF_TensorData(found[0]);
  int32_t* indices = TF_TensorData(found[1]);
  for (int64_t i = 0; i < TF_Dim(found[0], 1); i++) {
    printf("%d %.9g\n", indices[i], scores[i]);
  }
  return 0;
}
