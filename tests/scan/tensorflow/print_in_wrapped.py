from tensorflow import function


def step(batch):
    print("batch", batch)  # expect: print-under-jit
    return batch * 2


train = function(step, jit_compile=True)
